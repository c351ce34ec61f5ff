// Whole runs whose state is sharded over ranks.

#include <cstdlib>

#include "belay/comm/mpi_ranks.h"
#include "belay/comm/world.h"
#include "belay/train/ranks_harness.h"

namespace belay {
namespace {

class ZeroRunTest : public testing::RanksHarness {
 protected:
  static std::vector<std::string> with_zero(int zero, std::vector<std::string> overrides = {}) {
    overrides.push_back(fmt::format("parallel.zero={}", zero));
    return overrides;
  }

  // The files of a snapshot that hold numbers.
  static void expect_same_state(const std::string& snapshot, const std::string& other) {
    for (const char* const name : {"model.safetensors", "optimizer.safetensors"}) {
      const std::string file =
          read_file((std::filesystem::path(snapshot) / name).string(), 1 << 28);
      EXPECT_FALSE(file.empty());
      EXPECT_TRUE(file == read_file((std::filesystem::path(other) / name).string(), 1 << 28))
          << snapshot << " " << name;
    }
  }
};

TEST_F(ZeroRunTest, GivesTheRunOfOneRank) {
  const std::vector<std::string> plain = {"train.dtype=\"f32\"", "train.micro_batch=1"};
  const TrainSummary one = run(1, to(path("one")), plain);
  for (const int zero : {1, 2, 3}) {
    for (const int ranks : {1, 3}) {
      const std::string out = path(fmt::format("zero{}on{}", zero, ranks));
      const TrainSummary several = run(ranks, to(out), with_zero(zero, plain));
      expect_losses(path("one"), out, 1e-5);
      EXPECT_NEAR(*several.val_loss, *one.val_loss, 1e-5) << zero;
      EXPECT_TRUE(several.finished);
    }
  }
}

// A run may change its number of ranks and what they share in the middle, and never shows it: the
// losses and every byte of weights and moments are those of one rank.
TEST_F(ZeroRunTest, StableRunsGoOnWithAnotherStageAndNumberOfRanks) {
  for (const char* const dtype : {"f32", "bf16", "f16"}) {
    const auto with = [&](int zero) {
      return with_zero(zero, {"comm.order_stable=true", fmt::format("train.dtype=\"{}\"", dtype),
                              "train.micro_batch=1", "comm.bucket_mb=0.01"});
    };
    const std::string alone = path(fmt::format("one-{}", dtype));
    const std::string mixed = path(fmt::format("mixed-{}", dtype));
    const TrainSummary one = run(1, to(alone), with(0));
    static_cast<void>(run(4, to(mixed, 3), with(3)));
    static_cast<void>(run(2, to(mixed, 6, "auto"), with(2)));
    static_cast<void>(run(1, to(mixed, 8, "auto"), with(3)));
    static_cast<void>(run(4, to(mixed, 11, "auto"), with(1)));
    const TrainSummary rest = run(2, to(mixed, 0, "auto"), with(3));
    EXPECT_EQ(rest.first_step, 11);
    expect_losses(alone, mixed, 0.0);
    EXPECT_EQ(rest.val_loss, one.val_loss);
    expect_same_state(one.snapshot, rest.snapshot);
  }
}

TEST_F(ZeroRunTest, HalfPrecisionRecoversTogether) {
  for (const int zero : {1, 2, 3}) {
    const std::vector<std::string> half =
        with_zero(zero, {"train.dtype=\"f16\"", "train.eval_every=0",
                         "precision.scale_init=1099511627776", "precision.scale_max=2199023255552",
                         "precision.max_skips=200", "train.steps=60", "comm.order_stable=true"});
    const TrainSummary one = run(1, to(path(fmt::format("one{}", zero))), half);
    const TrainSummary two = run(2, to(path(fmt::format("two{}", zero))), half);
    EXPECT_GT(one.steps_non_finite, 0);
    EXPECT_EQ(two.steps_non_finite, one.steps_non_finite);
    EXPECT_EQ(two.loss_scale, one.loss_scale);
    EXPECT_EQ(two.loss, one.loss);
  }
}

TEST_F(ZeroRunTest, SharesMemory) {
  const auto planned = [&](int zero) {
    const std::string out = path(fmt::format("planned{}", zero));
    return run(2, to(out, 1), with_zero(zero, {"comm.bucket_mb=0.01", "model.layers=8"}))
        .planned_bytes;
  };
  const std::int64_t none = planned(0);
  const std::int64_t moments = planned(1);
  const std::int64_t gradients = planned(2);
  EXPECT_LT(moments, none);
  EXPECT_LT(gradients, moments);
  EXPECT_LT(planned(3), gradients);
}

// A snapshot that cannot be written lets the other ranks go.
TEST_F(ZeroRunTest, RanksOutliveASnapshotThatFails) {
  const RunConfig often = config_of(2, with_zero(3, {"train.snapshot_every=4", "train.steps=8",
                                                     "snapshot.on_failure=\"continue\""}));
  TrainOptions options = to(path("full"), 0, "auto");
  std::filesystem::create_directories(path("full") + "/snapshots/latest/in the way");
  std::vector<ExitCode> codes(2, ExitCode::ok);
  comm::expect_no_errors(comm::run_ranks(2, {}, [&](comm::Communicator& communicator) {
    TrainOptions own = options;
    own.communicator = &communicator;
    try {
      static_cast<void>(train(often, own));
    } catch (const Error& error) {
      codes[static_cast<std::size_t>(communicator.rank())] = error.code();
    }
  }));
  // The one in the middle was reported and the run went on; without the last it has failed.
  EXPECT_EQ(codes, std::vector<ExitCode>(2, ExitCode::data));
  EXPECT_EQ(steps(path("full")).size(), 8U);
}

// Compressed sums are made on all ranks, which then take their parts.
TEST_F(ZeroRunTest, GradientsMayBeCompressed) {
  const std::vector<std::string> each_one = {"train.steps=40", "train.micro_batch=4",
                                             "comm.compression_when=\"always\""};
  const TrainSummary dense = run(2, to(path("dense")), with_zero(2, each_one));
  EXPECT_EQ(dense.comm_bytes, dense.comm_dense_bytes);
  for (const int zero : {1, 2, 3}) {
    for (const char* const mode : {"int8", "topk"}) {
      const std::string out = path(fmt::format("{}{}", mode, zero));
      std::vector<std::string> how = with_zero(zero, each_one);
      how.push_back(fmt::format("comm.compression=\"{}\"", mode));
      const TrainSummary sparse = run(2, to(out), how);
      EXPECT_NEAR(*sparse.val_loss, *dense.val_loss, 0.1) << out;
      EXPECT_LT(sparse.comm_bytes, sparse.comm_dense_bytes) << out;
    }
  }
}

TEST_F(ZeroRunTest, RefusesWhatContradictsIt) {
  const auto refusal = [&](int zero, const std::string& setting) {
    try {
      static_cast<void>(config_of(2, with_zero(zero, {setting})));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::usage);
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(refusal(1, "comm.pipeline_depth=2").find("parallel.zero = 2"), std::string::npos);
  EXPECT_EQ(refusal(2, "comm.pipeline_depth=2"), "");
  EXPECT_NE(refusal(3, "comm.compression=\"int8\"").find("each of the 2 micro-batches"),
            std::string::npos);
  EXPECT_EQ(refusal(1, "comm.compression=\"int8\""), "");
}

// One rank of a run under mpirun, as `belay train` starts it.
TEST_F(ZeroRunTest, PlaysItsPart) {
  const char* const directory = std::getenv("BELAY_TEST_DIRECTORY");
  if (directory != nullptr) {
    TearDown();
    dir_ = directory;
  }
  const auto world = comm::World::join();
  comm::CommunicatorOptions how;
  how.timeout_s = 20;
  how.order_stable = true;
  comm::Communicator communicator(world->transport(), how);
  TrainOptions options = to(path(fmt::format("mpi{}", world->size())));
  options.communicator = &communicator;
  const std::vector<std::string> overrides =
      with_zero(3, {"comm.order_stable=true", "comm.bucket_mb=0.01", "machine.threads=1"});
  static_cast<void>(train(config_of(world->size(), overrides), options));
  if (directory != nullptr) dir_ = path("of no rank");
}

TEST_F(ZeroRunTest, ProcessesShareWeights) {
  for (const int ranks : {1, 2}) {
    const comm::MpiOutcome outcome = comm::run_under_mpi(ranks, "ZeroRunTest.PlaysItsPart",
                                                         {{"BELAY_TEST_DIRECTORY", path("")}});
    ASSERT_EQ(outcome.code, 0) << outcome.output;
  }
  expect_losses(path("mpi1"), path("mpi2"), 0.0);
  expect_same_state(path("mpi1/snapshots/step-00000015"), path("mpi2/snapshots/step-00000015"));
}

}  // namespace
}  // namespace belay
