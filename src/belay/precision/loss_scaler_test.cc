#include "belay/precision/loss_scaler.h"

#include <gtest/gtest.h>

#include <vector>

#include "belay/base/error.h"
#include "belay/precision/simulated_gradients.h"

namespace belay {
namespace {

PrecisionConfig dynamic_config() {
  PrecisionConfig config;
  config.loss_scale = LossScaleMode::dynamic;
  config.growth_interval = 3;
  return resolved(config, DType::f16);
}

TEST(LossScalerTest, PresetsAndDefaultsAreThePublishedOnes) {
  PrecisionConfig config;
  config.loss_scale = LossScaleMode::dynamic;
  EXPECT_EQ(LossScaler(resolved(config, DType::f16)).scale(), 65536.0);
  config.preset = ScalePreset::ascend;
  EXPECT_EQ(LossScaler(resolved(config, DType::f16)).scale(), 1024.0);
  config.scale_init = 4;
  EXPECT_EQ(LossScaler(resolved(config, DType::f16)).scale(), 4.0);
  EXPECT_EQ(config.growth_interval, 2000);
  EXPECT_EQ(config.scale_max, 65536.0 * 256);
  EXPECT_EQ(config.scale_min, 1.0);
}

TEST(LossScalerTest, AutomaticScalesHalfPrecisionOnly) {
  const PrecisionConfig config;
  EXPECT_EQ(resolved(config, DType::f16).loss_scale, LossScaleMode::dynamic);
  EXPECT_EQ(resolved(config, DType::f16).guard_limit, 65504.0);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    EXPECT_EQ(resolved(config, dtype).loss_scale, LossScaleMode::none);
    EXPECT_EQ(LossScaler(resolved(config, dtype)).scale(), 1.0);
  }
}

// Sixteen halvings from 65536 to the floor; from then on only the count of lost steps goes up.
TEST(LossScalerTest, OverflowsHalveDownToTheFloor) {
  LossScaler scaler(dynamic_config());
  double expected = 65536;
  for (int halving = 1; halving <= 16; ++halving) {
    EXPECT_TRUE(scaler.overflow());
    expected /= 2;
    EXPECT_EQ(scaler.scale(), expected);
    EXPECT_EQ(scaler.stuck(), 0);
  }
  EXPECT_EQ(scaler.scale(), 1.0);
  for (int lost = 1; lost <= 5; ++lost) {
    EXPECT_FALSE(scaler.overflow());
    EXPECT_EQ(scaler.scale(), 1.0);
    EXPECT_EQ(scaler.stuck(), lost);
  }
  scaler.good_step();
  EXPECT_EQ(scaler.stuck(), 0);
}

TEST(LossScalerTest, GrowsAfterGoodStepsInARowUpToTheCap) {
  PrecisionConfig config = dynamic_config();
  config.scale_max = 65536 * 4;
  LossScaler scaler(config);
  std::vector<double> scales;
  for (int step = 0; step < 12; ++step) {
    scaler.good_step();
    scales.push_back(scaler.scale());
  }
  EXPECT_EQ(scales, (std::vector<double>{65536, 65536, 131072, 131072, 131072, 262144, 262144,
                                         262144, 262144, 262144, 262144, 262144}));
}

TEST(LossScalerTest, AnOverflowStartsTheIntervalAgain) {
  LossScaler scaler(dynamic_config());
  scaler.good_step();
  scaler.good_step();
  scaler.overflow();
  EXPECT_EQ(scaler.scale(), 32768.0);
  EXPECT_FALSE(scaler.good_step());
  EXPECT_FALSE(scaler.good_step());
  EXPECT_TRUE(scaler.good_step());
  EXPECT_EQ(scaler.scale(), 65536.0);
}

TEST(LossScalerTest, WithoutLeaveGrowthWaitsAndThenComesAtOnce) {
  LossScaler scaler(dynamic_config());
  for (int step = 0; step < 10; ++step) EXPECT_FALSE(scaler.good_step(false));
  EXPECT_EQ(scaler.scale(), 65536.0);
  EXPECT_TRUE(scaler.good_step(true));
  EXPECT_EQ(scaler.scale(), 131072.0);
  EXPECT_EQ(testing::good_steps_of(scaler), 0);
}

TEST(LossScalerTest, LoweringIsNoLostStep) {
  LossScaler scaler(dynamic_config());
  for (int i = 0; i < 40; ++i) scaler.lower();
  EXPECT_EQ(scaler.scale(), 1.0);
  EXPECT_EQ(scaler.stuck(), 0);
}

TEST(LossScalerTest, FixedAndNoneNeverMove) {
  for (const LossScaleMode mode : {LossScaleMode::fixed, LossScaleMode::none}) {
    PrecisionConfig config = dynamic_config();
    config.loss_scale = mode;
    LossScaler scaler(config);
    const double scale = mode == LossScaleMode::none ? 1 : 65536;
    EXPECT_EQ(scaler.scale(), scale);
    for (int i = 0; i < 5; ++i) EXPECT_FALSE(scaler.good_step());
    for (int i = 1; i <= 5; ++i) {
      EXPECT_FALSE(scaler.overflow());
      EXPECT_EQ(scaler.stuck(), i) << "nothing can fall, so every overflow counts";
    }
    EXPECT_FALSE(scaler.lower());
    EXPECT_EQ(scaler.scale(), scale);
  }
}

// Every sequence of eight events, against a model written the other way round: from the events, not
// from the state.
TEST(LossScalerTest, EverySequenceOfEventsFollowsTheRules) {
  enum Event { good, withheld, overflow, lower };
  PrecisionConfig config = dynamic_config();
  config.scale_init = 2;
  config.scale_max = 8;
  config.growth_interval = 2;
  constexpr int kLength = 8;
  for (int code = 0; code < 1 << (2 * kLength); ++code) {
    LossScaler scaler(config);
    int exponent = 1;
    int run = 0;
    int stuck = 0;
    for (int at = 0; at < kLength; ++at) {
      switch ((code >> (2 * at)) & 3) {
        case good:
        case withheld: {
          stuck = 0;
          run = std::min(run + 1, 2);
          const bool leave = ((code >> (2 * at)) & 3) == good;
          if (run == 2 && leave) {
            exponent = std::min(exponent + 1, 3);
            run = 0;
          }
          scaler.good_step(leave);
          break;
        }
        case overflow:
          if (exponent == 0) ++stuck;
          exponent = std::max(exponent - 1, 0);
          run = 0;
          scaler.overflow();
          break;
        default:
          exponent = std::max(exponent - 1, 0);
          run = 0;
          scaler.lower();
      }
      ASSERT_EQ(scaler.scale(), static_cast<double>(1 << exponent)) << code << " at " << at;
      ASSERT_EQ(testing::good_steps_of(scaler), run) << code << " at " << at;
      ASSERT_EQ(scaler.stuck(), stuck) << code << " at " << at;
    }
  }
}

TEST(LossScalerTest, GoesOnFromItsState) {
  LossScaler scaler(dynamic_config());
  scaler.overflow();
  scaler.good_step();
  scaler.good_step();
  LossScaler resumed(dynamic_config());
  resumed.restore(scaler.state());
  EXPECT_EQ(resumed.state(), scaler.state());
  EXPECT_TRUE(resumed.good_step());
  EXPECT_EQ(resumed.scale(), 65536.0);
  for (const char* damaged : {"", "1", "65536 1", "65536 1 0 7", "3 1 0", "65536 -1 0", "x 1 0",
                              "nan 0 0", "inf 0 0", "65536 1 0x"}) {
    EXPECT_THROW(resumed.restore(damaged), Error) << damaged;
  }
}

TEST(PrecisionConfigTest, RefusesWhatDoesNotFit) {
  check_precision({});
  const auto refused = [](auto&& change) {
    PrecisionConfig config;
    change(config);
    try {
      check_precision(config);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::usage);
      return std::string(error.what());
    }
    return std::string();
  };
  const std::string odd = refused([](PrecisionConfig& c) { c.scale_init = 3000; });
  EXPECT_NE(odd.find("2048"), std::string::npos) << odd;
  EXPECT_NE(odd.find("4096"), std::string::npos) << odd;
  EXPECT_NE(refused([](PrecisionConfig& c) { c.growth_factor = 3; }), "");
  EXPECT_NE(refused([](PrecisionConfig& c) { c.scale_init = 0.5; }), "");
  EXPECT_NE(refused([](PrecisionConfig& c) { c.scale_max = 1024; }), "");
  EXPECT_NE(refused([](PrecisionConfig& c) { c.forecast_history = 100; }), "");
}

}  // namespace
}  // namespace belay
