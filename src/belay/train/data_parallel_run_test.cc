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

TEST_F(DataParallelRunTest, ThePlanCountsTheTokensOfAllRanks) {
  static_cast<void>(run(2, to(path("run"), 1)));
  const auto plan = nlohmann::json::parse(read_file(path("run/plan.json")));
  EXPECT_EQ(plan["tokens_per_step"], 8 * 16);
  const auto& predicted = plan["predicted"];
  EXPECT_NEAR(predicted["tokens_per_s"].get<double>(),
              8 * 16 / predicted["step_ms"].get<double>() * 1e3, 1e-3);
}

TEST_F(DataParallelRunTest, APipelineThatZeroBringsAnywayIsSaid) {
  const std::string said = "comm.pipeline_depth = 2 changes nothing";
  static_cast<void>(run(2, to(path("two"), 1), {"parallel.zero=2", "comm.pipeline_depth=2"}));
  EXPECT_TRUE(log_has(path("two"), said));
  static_cast<void>(run(2, to(path("plain"), 1), {"comm.pipeline_depth=2"}));
  EXPECT_FALSE(log_has(path("plain"), said));
}

// All ranks see that a run is hopeless, and one says so.
TEST_F(DataParallelRunTest, AHopelessRunIsGivenUpOnce) {
  const auto errors =
      errors_of(2, path("run"),
                {"train.dtype=\"f16\"", "train.eval_every=0", "precision.max_skips=3",
                 fmt::format("precision.scale_init={}", 0x1p126),
                 fmt::format("precision.scale_max={}", 0x1p127),
                 fmt::format("precision.scale_min={}", 0x1p126)});
  EXPECT_EQ(errors[0].code(), ExitCode::numerics) << errors[0].what();
  EXPECT_NE(std::string(errors[0].what()).find("last 3 steps"), std::string::npos)
      << errors[0].what();
  EXPECT_EQ(errors[1].code(), ExitCode::numerics);
  EXPECT_STREQ(errors[1].what(), "");
}

TEST_F(DataParallelRunTest, StableSumsOfThreeRanksAreRefusedOnce) {
  const auto errors = errors_of(3, path("run"), {"comm.order_stable=true"});
  EXPECT_NE(std::string(errors[0].what()).find("use 2 or 4 ranks"), std::string::npos)
      << errors[0].what();
  for (const Error& error : errors) EXPECT_EQ(error.code(), ExitCode::usage);
  EXPECT_STREQ(errors[1].what(), "");
  EXPECT_STREQ(errors[2].what(), "");
}

// Every host's memory counts, not only the first one's: here rank 1 is on another, with too many.
TEST_F(DataParallelRunTest, TheMemoryOfEveryHostIsAskedFor) {
  const auto crowded = [](int rank, RunConfig&, TrainOptions& options) {
    if (rank == 1) options.host.ranks = 1 << 24;
  };
  const auto errors = errors_of(2, path("run"), {}, crowded);
  for (const Error& error : errors) EXPECT_EQ(error.code(), ExitCode::capacity) << error.what();
  EXPECT_NE(std::string(errors[1].what()).find("16777216 ranks on this host"), std::string::npos)
      << errors[1].what();
  // Of a host's ranks one asks for all.
  const auto second = [&](int rank, RunConfig& config, TrainOptions& options) {
    crowded(rank, config, options);
    options.host.rank = rank;
  };
  for (const Error& error : errors_of(2, path("next"), {}, second)) {
    EXPECT_EQ(error.code(), ExitCode::ok) << error.what();
  }
}

TEST_F(DataParallelRunTest, RanksMustReadTheSameData) {
  write_tokens("other.bin", 903);
  for (const std::string key : {"train", "val"}) {
    const auto errors = errors_of(2, path("run"), {}, [&](int rank, RunConfig& config, auto&) {
      if (rank == 1) (key == "val" ? config.data.val : config.data.train) = path("other.bin");
    });
    for (const Error& error : errors) EXPECT_EQ(error.code(), ExitCode::data);
    EXPECT_NE(std::string(errors[1].what()).find("data." + key + " has "), std::string::npos)
        << errors[1].what();
  }
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
