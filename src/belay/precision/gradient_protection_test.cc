#include "belay/precision/gradient_protection.h"

#include <gtest/gtest.h>

#include "belay/base/error.h"
#include "belay/precision/simulated_gradients.h"

namespace belay {
namespace {

using testing::half_config;
using testing::noise;
using testing::simulate;
using testing::two_layers;

TEST(LayerGroupsTest, FollowParameterNames) {
  const std::vector<std::string> names = {"embedding.weight",     "layers.0.norm1.weight",
                                          "layers.0.ffn.up.bias", "layers.10.norm1.weight",
                                          "final_norm.weight",    "head.weight"};
  const LayerGroups groups(names);
  EXPECT_EQ(groups.names(),
            (std::vector<std::string>{"embedding", "layers.0", "layers.10", "final_norm", "head"}));
  std::vector<double> norms(5);
  groups.norms(std::vector<double>{4, 9, 16, 0, 1, 64}, 2, norms);
  EXPECT_EQ(norms, (std::vector<double>{1, 2.5, 0, 0.5, 4}));
}

TEST(GradientProtectionTest, TheMultiplierIsThatOfTheMeanLoss) {
  PrecisionConfig config = half_config();
  EXPECT_EQ(GradientProtection(config, two_layers(), 4096).multiplier(), 4.0);
  EXPECT_EQ(GradientProtection(config, two_layers(), 4097).multiplier(), 2.0);
  config.loss_scale = LossScaleMode::none;
  EXPECT_EQ(GradientProtection(config, two_layers(), 4096).multiplier(), 1.0);
}

TEST(GradientProtectionTest, WithoutScalingNothingMoves) {
  PrecisionConfig config = half_config();
  config.loss_scale = LossScaleMode::none;
  GradientProtection protection(config, two_layers(), 1);
  for (int step = 0; step < 300; ++step) {
    const ScaleChange change = protection.good_step(std::vector<double>{1e20, 1e20}, 1);
    EXPECT_EQ(change.after, 1.0);
    EXPECT_EQ(change.look, nullptr);
  }
  EXPECT_EQ(protection.norms()[0], 1e10);
}

// Cut anywhere, a run of the scripted gradients gives the same scales.
TEST(GradientProtectionTest, ResumesBitForBit) {
  PrecisionConfig config = half_config();
  config.growth_interval = 150;
  const auto norm = [](std::int64_t step) {
    const double wave = 1.5 * std::sin(static_cast<double>(step) / 300);
    return 2 * std::exp2(wave) * noise(0.2, static_cast<std::uint64_t>(step));
  };
  GradientProtection unbroken(config, two_layers(), 1);
  const auto expected = simulate(unbroken, 1, 3000, norm);
  EXPECT_GT(expected.highest_scale, 16384);
  for (const std::int64_t cut : {1, 99, 100, 101, 777, 1500, 2950}) {
    GradientProtection first(config, two_layers(), 1);
    auto scales = simulate(first, 1, cut, norm).scales;
    GradientProtection second(config, two_layers(), 1);
    second.restore(first.state());
    const auto rest = simulate(second, cut + 1, 3000, norm).scales;
    scales.insert(scales.end(), rest.begin(), rest.end());
    EXPECT_EQ(scales, expected.scales) << cut;
    EXPECT_EQ(second.state(), unbroken.state()) << cut;
  }
  EXPECT_THROW(unbroken.restore("nonsense 1"), Error);
  EXPECT_THROW(unbroken.restore("scaler 1 2"), Error);
}

// A state of a guarded run serves one without a guard.
TEST(GradientProtectionTest, TakesWhatItNeedsOfAState) {
  PrecisionConfig config = half_config();
  GradientProtection guarded(config, two_layers(), 1);
  simulate(guarded, 1, 120, [](std::int64_t) { return 1.0; });
  config.guard = false;
  GradientProtection plain(config, two_layers(), 1);
  plain.restore(guarded.state());
  EXPECT_EQ(testing::good_steps_of(plain.scaler()), 120);
  GradientProtection fresh(half_config(), two_layers(), 1);
  fresh.restore(plain.state());
  EXPECT_EQ(testing::good_steps_of(fresh.scaler()), 120);
}

}  // namespace
}  // namespace belay
