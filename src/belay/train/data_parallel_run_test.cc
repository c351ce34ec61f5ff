// Whole data-parallel runs, with threads as ranks.

#include "belay/train/ranks_harness.h"

namespace belay {
namespace {

using DataParallelRunTest = testing::RanksHarness;

TEST_F(DataParallelRunTest, GivesTheRunOfOneRank) {
  const TrainSummary one = run(1, to(path("one")), {"train.dtype=\"f32\""});
  for (const int ranks : {2, 3}) {
    const std::string out = path(fmt::format("ranks{}", ranks));
    const TrainSummary several = run(ranks, to(out), {"train.dtype=\"f32\""});
    expect_losses(path("one"), out, 1e-5);
    EXPECT_NEAR(*several.val_loss, *one.val_loss, 1e-5);
    EXPECT_TRUE(several.finished);
    EXPECT_GT(steps(out).at(3)["comm_ms"].get<double>(), 0.0);
  }
}

// 8 rows in micro-batches of 2 on 3 ranks: the first has two, the others one.
TEST_F(DataParallelRunTest, PipelinedRunsGiveTheRunOfOneRank) {
  const TrainSummary one = run(1, to(path("one")), {"train.dtype=\"f32\""});
  const std::vector<std::string> pipelined = {"train.dtype=\"f32\"", "comm.pipeline_depth=2"};
  for (const int ranks : {2, 3, 4}) {
    const std::string out = path(fmt::format("ranks{}", ranks));
    const TrainSummary several = run(ranks, to(out), pipelined);
    expect_losses(path("one"), out, 1e-5);
    EXPECT_NEAR(*several.val_loss, *one.val_loss, 1e-5);
  }
}

// In the order-stable mode a run may change its number of ranks in the middle and never shows it.
TEST_F(DataParallelRunTest, StableRunsGoOnWithAnotherNumberOfRanks) {
  const std::vector<std::string> stable = {"comm.order_stable=true"};
  const TrainSummary one = run(1, to(path("one")), stable);
  static_cast<void>(run(4, to(path("mixed"), 6), stable));
  const TrainSummary rest = run(2, to(path("mixed"), 0, "auto"), stable);
  EXPECT_EQ(rest.first_step, 6);
  expect_losses(path("one"), path("mixed"), 0.0);
  EXPECT_EQ(rest.loss, one.loss);
  EXPECT_EQ(rest.val_loss, one.val_loss);
}

// The loss scale is state of every rank, and decided alike by all.
TEST_F(DataParallelRunTest, HalfPrecisionRecoversTogether) {
  const std::vector<std::string> half = {"train.dtype=\"f16\"",
                                         "train.eval_every=0",
                                         "precision.scale_init=1099511627776",
                                         "precision.scale_max=2199023255552",
                                         "precision.max_skips=200",
                                         "train.steps=60"};
  const TrainSummary one = run(1, to(path("one")), half);
  const TrainSummary two = run(2, to(path("two")), half);
  EXPECT_GT(one.steps_non_finite, 0);
  EXPECT_GT(two.steps_non_finite, 0);
  EXPECT_LT(two.loss_scale, 0x1p40);
  EXPECT_NEAR(two.loss, one.loss, 0.2);
}

TEST_F(DataParallelRunTest, RefusesNumbersOfRanksThatDoNotFit) {
  try {
    static_cast<void>(config_of(5, {}));
    ADD_FAILURE() << "5 ranks for 4 micro-batches";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_NE(std::string(error.what()).find("use at most 4 ranks"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace belay
