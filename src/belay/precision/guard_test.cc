#include "belay/precision/guard.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "belay/base/allocation_count.h"
#include "belay/base/error.h"
#include "belay/precision/simulated_gradients.h"

namespace belay {
namespace {

using testing::half_config;
using testing::noise;
using testing::Outcome;
using testing::simulate;
using testing::two_layers;

// Head room at a scale of 16384 is a norm of 4. From 2 on, a doubling in 2000 steps: above 0.8 of
// the head room after some 1360 steps, out of it after 2000.
double slow_drift(std::int64_t step) {
  return 2 * std::exp2(static_cast<double>(step) / 2000) *
         noise(0.03, static_cast<std::uint64_t>(step));
}

TEST(GuardTest, ThreeLooksAboveTheShareLowerTheScaleBeforeAnOverflow) {
  PrecisionConfig config = half_config();
  config.forecast = ForecastAction::off;
  GradientProtection guarded(config, two_layers(), 1);
  const Outcome with = simulate(guarded, 1, 4000, slow_drift);
  EXPECT_EQ(with.skipped, 0);
  EXPECT_GT(with.first_lowering, 1400);
  EXPECT_LT(with.first_lowering, 1800);
  EXPECT_EQ(with.first_lowering % 100, 0) << "only looks lower";
  EXPECT_EQ(with.scale, 8192.0 / 2) << "two doublings of the norm, the second one below the share";

  config.guard = false;
  GradientProtection usual(config, two_layers(), 1);
  const Outcome without = simulate(usual, 1, 4000, slow_drift);
  EXPECT_GE(without.skipped, 1);
  EXPECT_GT(without.first_overflow, with.first_lowering);
}

// Two looks above, then one below: no halving.
TEST(GuardTest, TheLooksMustBeInARow) {
  PrecisionConfig config = half_config();
  config.forecast = ForecastAction::off;
  config.guard_every = config.guard_window = 10;
  const auto norm = [](std::int64_t step) { return (step - 1) / 10 % 3 == 2 ? 1.0 : 3.9; };
  GradientProtection protection(config, two_layers(), 1);
  EXPECT_EQ(simulate(protection, 1, 300, norm).scale, 16384.0);
  const auto steady = [](std::int64_t) { return 3.9; };
  GradientProtection other(config, two_layers(), 1);
  EXPECT_EQ(simulate(other, 1, 300, steady).first_lowering, 30);
}

// A quantile passes over outliers that are rarer than it asks for.
TEST(GuardTest, TheQuantilePassesOverRareOutliers) {
  PrecisionConfig config = half_config();
  config.forecast = ForecastAction::off;
  const auto rare = [](std::int64_t step) { return step % 12 == 0 ? 3.9 : 0.5; };
  GradientProtection protection(config, two_layers(), 1);
  EXPECT_EQ(simulate(protection, 1, 1000, rare).first_lowering, 0);
  const auto often = [](std::int64_t step) { return step % 6 == 0 ? 3.9 : 0.5; };
  GradientProtection other(config, two_layers(), 1);
  EXPECT_EQ(simulate(other, 1, 1000, often).first_lowering, 300);
}

// Newer norms weigh more: with a strong decay half a window of large ones is nearly all of it.
TEST(GuardTest, DecayFavoursTheNewest) {
  PrecisionConfig config = half_config();
  config.forecast = ForecastAction::off;
  config.guard_quantile = 0.5;
  config.guard_patience = 1;
  const auto late = [](std::int64_t step) {
    return step % 100 >= 80 || step % 100 == 0 ? 3.9 : 0.5;
  };
  GradientProtection even(config, two_layers(), 1);
  EXPECT_EQ(simulate(even, 1, 100, late).first_lowering, 0);
  config.guard_decay = 0.9;
  GradientProtection decayed(config, two_layers(), 1);
  EXPECT_EQ(simulate(decayed, 1, 100, late).first_lowering, 100);
}

// A doubling in 150 steps outruns three looks of 100 steps; the forecast sees it coming.
TEST(GuardTest, AForecastLowersWhereTheLooksWouldBeLate) {
  const auto drift = [](std::int64_t step) {
    const double rise = step < 600 ? 0 : static_cast<double>(step - 600) / 150;
    return 0.5 * std::exp2(rise) * noise(0.05, static_cast<std::uint64_t>(step));
  };
  PrecisionConfig config = half_config();
  GradientProtection guarded(config, two_layers(), 1);
  const Outcome with = simulate(guarded, 1, 1500, drift);
  EXPECT_EQ(with.skipped, 0);
  EXPECT_GT(with.first_lowering, 600);

  config.forecast = ForecastAction::off;
  GradientProtection late(config, two_layers(), 1);
  const Outcome looks_only = simulate(late, 1, 1500, drift);
  EXPECT_GT(looks_only.skipped, 0);
  config.guard = false;
  GradientProtection usual(config, two_layers(), 1);
  const Outcome without = simulate(usual, 1, 1500, drift);
  EXPECT_GE(without.skipped, 3);
}

TEST(GuardTest, WarningOnlyWarns) {
  const auto drift = [](std::int64_t step) {
    return 0.5 * std::exp2(static_cast<double>(step) / 150) *
           noise(0.05, static_cast<std::uint64_t>(step));
  };
  PrecisionConfig config = half_config();
  config.forecast = ForecastAction::warn;
  Guard guard(config, 1);
  NormHistory history(1, Guard::history_needed(config));
  std::int64_t first_warning = 0;
  for (std::int64_t step = 1; step <= 400; ++step) {
    history.push(std::vector<double>{drift(step)});
    const GuardLook* const look = guard.after_step(history, 16384);
    EXPECT_EQ(look != nullptr, step % 100 == 0);
    if (look == nullptr || look->leaves_in == 0) continue;
    if (first_warning == 0) first_warning = step;
    EXPECT_EQ(look->halvings, 0);
    EXPECT_EQ(look->leaving_layer, 0);
    // Head room ends at step 450; the forecast is off by a quarter at most.
    EXPECT_NEAR(static_cast<double>(step + look->leaves_in), 450, 50) << step;
    EXPECT_LE(look->endangered_in, look->leaves_in);
  }
  EXPECT_GT(first_warning, 0);
}

// Growth waits while the doubled scale would be above the share, and comes when norms fall.
TEST(GuardTest, TheScaleGrowsWhenHeadRoomReturns) {
  PrecisionConfig config = half_config();
  config.growth_interval = 200;
  const auto norm = [](std::int64_t step) {
    const double level = step <= 2000 ? 2.5 : 0.3;
    return level * noise(0.03, static_cast<std::uint64_t>(step));
  };
  GradientProtection guarded(config, two_layers(), 1);
  const Outcome with = simulate(guarded, 1, 4000, norm);
  EXPECT_EQ(with.skipped, 0);
  EXPECT_EQ(with.scales[1999], 16384.0);
  // 0.3 x 131072 is 0.6 of the head room, and twice that is too much.
  EXPECT_EQ(with.scale, 131072.0);

  // The usual scaler tries and loses a step every time.
  config.guard = false;
  GradientProtection usual(config, two_layers(), 1);
  EXPECT_GT(simulate(usual, 1, 4000, norm).skipped, 10);
}

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// A layer that stayed finite says how far to fall, at once: by how much it has grown.
TEST(GuardTest, FiniteLayersTellHowFarToFall) {
  Guard guard(half_config(), 3);
  NormHistory history(3, Guard::history_needed(half_config()));
  const auto halvings = [&](std::vector<double> norms, double scale, bool loss_finite) {
    return guard.after_overflow(history, norms, scale, loss_finite);
  };
  // Without a history the norms themselves: 1000 x 16384 is 0.8 of the head room 313 times.
  EXPECT_EQ(halvings({kInfinity, 1000, 3}, 16384, true), 9);
  for (int step = 0; step < 50; ++step) history.push(std::vector<double>{2, 0.1, 0});
  // 16-fold, where 2 x 16384 was 0.63 of 0.8 of the head room.
  EXPECT_EQ(halvings({kInfinity, 1.6, 0}, 16384, true), 4);
  EXPECT_EQ(halvings({kInfinity, 0.1, 0}, 16384, true), 1);
  EXPECT_EQ(halvings({kInfinity, 0.1, 0.1}, 16384, true), 1) << "never had a gradient before";
  EXPECT_EQ(halvings({std::nan(""), 1.6, 0}, 32, true), 1);
  EXPECT_EQ(halvings({kInfinity, 1.6, 0}, 16384, false), 1);
}

// Without any finite layer falls double, until a step is good.
TEST(GuardTest, BlindFallsDouble) {
  const NormHistory history(2, 4);
  const std::vector<double> blind(2, kInfinity);
  Guard guard(half_config(), 2);
  for (const int halvings : {2, 4, 8, 16, 32, 32}) {
    EXPECT_EQ(guard.after_overflow(history, blind, 16384, true), halvings);
  }
  Guard resumed(half_config(), 2);
  resumed.restore(guard.state());
  EXPECT_EQ(resumed.after_overflow(history, blind, 16384, true), 32);
  guard.recovered();
  EXPECT_EQ(guard.after_overflow(history, blind, 16384, true), 2);
  // A loss that is not finite is none of the scale's doing.
  EXPECT_EQ(guard.after_overflow(history, blind, 16384, false), 1);
  EXPECT_EQ(guard.after_overflow(history, blind, 16384, true), 4);
}

// A jump costs one step where another layer tells of it, and the usual scaler one per halving.
TEST(GuardTest, ASuddenJumpCostsFewSteps) {
  const auto jump = [](std::int64_t step) { return step <= 500 ? 0.5 : 0.5 * 0x1p12; };
  GradientProtection guarded(half_config(), two_layers(), 1);
  EXPECT_EQ(simulate(guarded, 1, 900, jump).skipped, 1);
  PrecisionConfig config = half_config();
  config.guard = false;
  GradientProtection usual(config, two_layers(), 1);
  EXPECT_EQ(simulate(usual, 1, 900, jump).skipped, 10);
}

TEST(GuardTest, ASteadyGradientIsLeftAlone) {
  const auto steady = [](std::int64_t step) {
    return 1.5 * noise(0.15, static_cast<std::uint64_t>(step));
  };
  GradientProtection protection(half_config(), two_layers(), 1);
  const Outcome outcome = simulate(protection, 1, 1900, steady);
  EXPECT_EQ(outcome.first_lowering, 0);
  EXPECT_EQ(outcome.scale, 16384.0);
}

TEST(GuardTest, AWarmStepAllocatesNothing) {
  const PrecisionConfig config = half_config();
  Guard guard(config, 4);
  NormHistory history(4, Guard::history_needed(config));
  std::vector<double> norms(4);
  std::int64_t allocated = 0;
  int looks = 0;
  for (std::uint64_t step = 1; step <= 1200; ++step) {
    for (std::uint32_t layer = 0; layer < 4; ++layer) norms[layer] = noise(0.3, step, layer);
    const std::int64_t before = allocation_count();
    history.push(norms);
    if (guard.after_step(history, 1024) != nullptr) ++looks;
    allocated += allocation_count() - before;
  }
  EXPECT_EQ(looks, 12);
  EXPECT_EQ(allocated, 0);
}

TEST(GuardTest, RefusesADamagedState) {
  Guard guard(half_config(), 1);
  guard.restore(Guard(half_config(), 1).state());
  for (const char* damaged : {"", "1", "1 2 3", "1 2 3 4 5", "-1 2 3 0", "1 nan 3 0", "1 2 inf 0",
                              "x 2 3 0", "1 2 3 -1", "1 2 3 5"}) {
    EXPECT_THROW(guard.restore(damaged), Error) << damaged;
  }
}

}  // namespace
}  // namespace belay
