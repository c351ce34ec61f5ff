// What a resumed run says of settings that are not the snapshot's.

#include "belay/train/resume.h"

#include "belay/train/ranks_harness.h"

namespace belay {
namespace {

class ResumeTest : public testing::RanksHarness {
 protected:
  using Overrides = std::vector<std::string>;

  // The log of a run of two steps that goes on for two more with other settings.
  [[nodiscard]] std::string log_of(int ranks, const Overrides& before, const Overrides& after) {
    const std::string out = path(fmt::format("run{}", runs_++));
    static_cast<void>(run(ranks, to(out, 2), before));
    EXPECT_EQ(run(ranks, to(out, 4, "auto"), after).first_step, 2);
    return read_file(out + "/log.txt");
  }
  static bool has(const std::string& log, std::string_view text) {
    return log.find(text) != std::string::npos;
  }

 private:
  int runs_ = 0;
};

TEST_F(ResumeTest, WhatRoundsOtherwiseIsNamed) {
  const std::vector<std::pair<std::string, std::string>> changes = {
      {"parallel.zero=2", "zero was 0 and is 2 now"},
      {"comm.pipeline_depth=2", "pipeline_depth was 0 and is 2 now"},
      {"comm.chooser=\"ring-tree-hierarchical\"",
       "chooser was size and is ring-tree-hierarchical now"},
      {"comm.force=\"all_reduce:0-65536=direct\"",
       "force was \"\" and is all_reduce:0-65536=direct now"},
  };
  for (const auto& [change, expected] : changes) {
    EXPECT_TRUE(has(log_of(2, {}, {change}), expected)) << change;
    // With one rank nothing is summed over ranks.
    EXPECT_FALSE(has(log_of(1, {}, {change}), "not bit for bit")) << change;
  }
  EXPECT_FALSE(has(log_of(2, {}, {}), "not bit for bit"));
  const std::string stable = "comm.order_stable=true";
  EXPECT_FALSE(has(log_of(2, {stable}, {stable, "parallel.zero=2"}), "not bit for bit"));
}

TEST_F(ResumeTest, AMeasuredChoiceOfAlgorithmsMayChange) {
  const std::string measured = "comm.chooser=\"model\"";
  EXPECT_TRUE(has(log_of(4, {measured}, {measured}), "measures the links anew"));
  EXPECT_FALSE(has(log_of(2, {measured}, {measured}), "measures the links anew"));
  const Overrides stable = {measured, "comm.order_stable=true"};
  EXPECT_FALSE(has(log_of(4, stable, stable), "measures the links anew"));
}

TEST_F(ResumeTest, WhatSteersTheLossScaleIsCompared) {
  const std::string half = "train.dtype=\"f16\"";
  const std::string warning = "loss scaling is not what it was";
  EXPECT_FALSE(has(log_of(1, {half}, {half, "precision.record_norms=false"}), warning));
  // Resolved in different ways to the same.
  EXPECT_FALSE(has(log_of(1, {half}, {half, "precision.loss_scale=\"dynamic\""}), warning));
  const std::vector<std::pair<std::string, std::string>> changes = {
      {"precision.guard_patience=5", "precision.guard_patience is 5 here and 3 there"},
      {"precision.growth_interval=100", "precision.growth_interval is 100 here and 2000 there"},
      {"precision.scale_max=1048576", "precision.scale_max is 1048576.0 here and 16777216.0"},
      {"precision.loss_scale=\"none\"",
       "precision.loss_scale is \"none\" here and \"dynamic\" there"},
  };
  for (const auto& [change, expected] : changes) {
    const std::string log = log_of(1, {half}, {half, change});
    EXPECT_TRUE(has(log, warning)) << change;
    EXPECT_TRUE(has(log, expected)) << change << "\n" << log;
  }
  // Nothing steers without a scale.
  EXPECT_FALSE(has(log_of(1, {}, {"precision.guard_patience=5"}), warning));
}

}  // namespace
}  // namespace belay
