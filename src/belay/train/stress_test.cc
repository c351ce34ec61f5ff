// The stress suite in small: what each protection makes of a script, and the same bits again.

#include "belay/train/stress.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

namespace belay {
namespace {

StressOptions short_run() {
  StressOptions options;
  options.steps = 240;
  return options;
}

class StressTest : public ::testing::TestWithParam<StressScenario> {};

TEST_P(StressTest, PlainDiesAndTheGuardLosesFewSteps) {
  const StressOptions options = short_run();
  const StressResult f32 = run_stress(GetParam(), StressProtection::f32, options);
  const StressResult plain = run_stress(GetParam(), StressProtection::plain, options);
  const StressResult scaler = run_stress(GetParam(), StressProtection::scaler, options);
  const StressResult guard = run_stress(GetParam(), StressProtection::guard, options);

  EXPECT_EQ(f32.survived, options.steps);
  EXPECT_EQ(f32.skipped, 0);
  EXPECT_LT(plain.survived, options.steps / 2 + 10);
  EXPECT_GE(plain.skipped, 10);
  EXPECT_EQ(scaler.survived, options.steps);
  EXPECT_EQ(guard.survived, options.steps);
  EXPECT_GT(scaler.skipped, 0);
  EXPECT_LE(3 * guard.skipped, scaler.skipped);
  EXPECT_LT(guard.lowest_scale, 65536);
  // Better than chance, which is 64, by far, and beside f32.
  EXPECT_LT(f32.perplexity, 20);
  EXPECT_NEAR(guard.perplexity / f32.perplexity, 1, 0.05);
}

TEST_P(StressTest, TheSameBitsAgain) {
  StressOptions options;
  options.steps = kFewestStressSteps;
  for (const StressProtection protection : {StressProtection::scaler, StressProtection::guard}) {
    EXPECT_EQ(run_stress(GetParam(), protection, options),
              run_stress(GetParam(), protection, options));
  }
}

INSTANTIATE_TEST_SUITE_P(Scenarios, StressTest,
                         ::testing::Values(StressScenario::spike, StressScenario::drift,
                                           StressScenario::bad_batch, StressScenario::outlier),
                         [](const auto& info) {
                           std::string name(name_of(info.param));
                           std::erase(name, '-');
                           return name;
                         });

TEST(StressScriptTest, GradientsGrowWhenTheScriptSaysSo) {
  const StressScript spike(StressScenario::spike, 400);
  EXPECT_EQ(spike.gradient_factor(spike.begin() - 1), 1);
  EXPECT_EQ(spike.gradient_factor(spike.begin()), 0x1p17);
  EXPECT_EQ(spike.gradient_factor(spike.end() - 1), 0x1p17);
  EXPECT_EQ(spike.gradient_factor(spike.end()), 1);

  const StressScript drift(StressScenario::drift, 400);
  double before = 1;
  for (std::int64_t step = drift.begin(); step < 2 * drift.begin() - 1; ++step) {
    EXPECT_GT(drift.gradient_factor(step), before) << step;
    EXPECT_LT(drift.gradient_factor(step), 1.2 * before) << step;
    before = drift.gradient_factor(step);
  }
  EXPECT_EQ(before, 0x1p17);
  EXPECT_EQ(drift.gradient_factor(400), 0x1p17);

  const StressScript outlier(StressScenario::outlier, 400);
  double product = 1;
  for (std::int64_t step = 1; step <= 400; ++step) product *= outlier.row_factor(step);
  EXPECT_EQ(product, 1) << "what was done is undone";
  for (const std::string_view name : stress_scenario_names()) {
    EXPECT_EQ(name_of(parse_stress_scenario(name).value()), name);
  }
  EXPECT_FALSE(parse_stress_scenario("spikes").has_value());
}

// Each token is followed by the same few, half of the time by one of them.
TEST(StressScriptTest, TokensCanBeLearned) {
  MarkovTokens tokens(16, 3);
  std::vector<std::vector<int>> followers(16, std::vector<int>(16));
  for (std::uint32_t number = 0; number < 50; ++number) {
    tokens.fill(number, 4, 32);
    const HostBatch batch = tokens.batch();
    for (std::int64_t i = 0; i < 4 * 32; ++i) {
      if (i % 32 != 31) {
        EXPECT_EQ(batch.targets[i], batch.tokens[i + 1]);
      }
      ++followers[static_cast<std::size_t>(batch.tokens[i])]
                 [static_cast<std::size_t>(batch.targets[i])];
    }
  }
  for (const std::vector<int>& counts : followers) {
    int kinds = 0;
    int all = 0;
    int most = 0;
    for (const int count : counts) {
      kinds += count > 0 ? 1 : 0;
      all += count;
      most = std::max(most, count);
    }
    if (all < 100) continue;
    EXPECT_LE(kinds, 4);
    EXPECT_GT(most, all / 3);
  }
  tokens.fill(1, 1, 8);
  const std::vector<std::int32_t> one(tokens.batch().tokens, tokens.batch().tokens + 8);
  tokens.fill(2, 1, 8);
  EXPECT_NE(one, std::vector<std::int32_t>(tokens.batch().tokens, tokens.batch().tokens + 8));
}

}  // namespace
}  // namespace belay
