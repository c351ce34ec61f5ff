// Whole data-parallel runs with compressed gradients, with threads as ranks.

#include <cstring>

#include "belay/parallel/test_table.h"
#include "belay/snapshot/safetensors.h"
#include "belay/snapshot/snapshot.h"
#include "belay/snapshot/verify.h"
#include "belay/train/ranks_harness.h"
#include "belay/train/residual_state.h"

namespace belay {
namespace {

constexpr const char* kModes[] = {"int8", "topk", "topk_int8"};

class CompressedRunTest : public testing::RanksHarness {
 protected:
  // The first rank's summary.
  [[nodiscard]] TrainSummary run(int ranks, const TrainOptions& options, const std::string& mode,
                                 const std::vector<std::string>& overrides = {},
                                 const std::vector<int>& domain_of = {}) const {
    std::vector<std::string> all = {"train.global_batch=8",
                                    "train.eval_every=5",
                                    "comm.compression=\"" + mode + "\"",
                                    "comm.topk_ratio=0.2",
                                    "comm.compression_when=\"always\"",
                                    "comm.bucket_mb=0.01"};
    all.insert(all.end(), overrides.begin(), overrides.end());
    const RunConfig run_config = config(all, ranks);
    TrainSummary summary;
    comm::CommunicatorOptions how;
    how.layout.domain_of = domain_of;
    comm::expect_no_errors(comm::run_ranks(ranks, how, [&](comm::Communicator& communicator) {
      TrainOptions own = options;
      own.communicator = &communicator;
      const TrainSummary mine = train(run_config, own);
      if (communicator.rank() == 0) summary = mine;
    }));
    return summary;
  }
};

TEST_F(CompressedRunTest, LearnsAsWithoutAndSendsLess) {
  const TrainSummary dense = run(2, to(path("dense")), "none", {"train.steps=40"});
  EXPECT_EQ(dense.comm_bytes, dense.comm_dense_bytes);
  EXPECT_GT(dense.comm_bytes, 0);
  for (const char* const mode : kModes) {
    const TrainSummary sparse = run(2, to(path(mode)), mode, {"train.steps=40"});
    EXPECT_NEAR(*sparse.val_loss, *dense.val_loss, 0.1) << mode;
    EXPECT_EQ(sparse.comm_dense_bytes, dense.comm_dense_bytes);
    EXPECT_LT(sparse.comm_bytes, 0.35 * sparse.comm_dense_bytes) << mode;
    const nlohmann::json record = steps(path(mode)).at(3);
    EXPECT_LT(record["comm_bytes"].get<double>(), 0.35 * record["comm_dense_bytes"].get<double>());
  }
}

TEST_F(CompressedRunTest, TheWarmUpIsThatWithoutCompression) {
  static_cast<void>(run(2, to(path("dense")), "none"));
  const auto dense = steps(path("dense"));
  for (const std::string mode : kModes) {
    SCOPED_TRACE(mode);
    static_cast<void>(run(2, to(path(mode)), mode, {"comm.compression_warmup=6"}));
    const auto ours = steps(path(mode));
    for (const int step : {1, 6, 7}) EXPECT_EQ(ours.at(step)["loss"], dense.at(step)["loss"]);
    EXPECT_EQ(ours.at(6)["comm_bytes"], dense.at(6)["comm_bytes"]);
    EXPECT_LT(ours.at(7)["comm_bytes"], dense.at(7)["comm_bytes"]);
    EXPECT_NE(ours.at(15)["loss"], dense.at(15)["loss"]);
  }
}

TEST_F(CompressedRunTest, AResumedRunRepeatsTheLossesBitForBit) {
  for (const std::string mode : kModes) {
    for (const std::string when : {"always", "pays"}) {
      SCOPED_TRACE(mode + " " + when);
      const std::vector<std::string> how = {"comm.compression_when=\"" + when + "\""};
      const std::string whole = path(mode + when);
      // One run writes both halves' snapshots, so that what it measured is the same for both.
      static_cast<void>(
          run(2, to(whole), mode, {how[0], "train.snapshot_every=6", "train.keep_snapshots=9"}));
      const std::string parts = path(mode + when + "-parts");
      static_cast<void>(run(2, to(parts, 0, whole + "/snapshots/step-00000006"), mode, how));
      auto first = steps(whole);
      const auto rest = steps(parts);
      EXPECT_EQ(rest.size(), 9U);
      for (const auto& [step, record] : rest) {
        EXPECT_EQ(record["loss"], first.at(step)["loss"]) << step;
        EXPECT_EQ(record["comm_bytes"], first.at(step)["comm_bytes"]) << step;
      }
      for (const Verified& verified : verify(whole)) EXPECT_TRUE(verified.problems.empty());
    }
  }
}

TEST_F(CompressedRunTest, OtherBucketsAndOtherNumbersOfRanksGoOn) {
  for (const std::string mode : kModes) {
    SCOPED_TRACE(mode);
    static_cast<void>(run(4, to(path(mode), 6), mode));
    const TrainSummary rest =
        run(2, to(path(mode), 0, "auto"), mode, {"comm.bucket_mb=0.003", "comm.buckets=2"});
    EXPECT_EQ(rest.first_step, 6);
    EXPECT_TRUE(rest.finished);
    // Without compression, and with another.
    EXPECT_TRUE(run(2, to(path(mode + "-none"), 0, path(mode) + "/snapshots/step-00000006"), "none")
                    .finished);
    EXPECT_TRUE(run(3, to(path(mode + "-int8"), 0, path(mode) + "/snapshots/step-00000006"), "int8")
                    .finished);
  }
}

// The sum of what is owed stays, whoever owes it.
TEST_F(CompressedRunTest, RanksTakeOverWhatOthersOwe) {
  const ParameterTable table = testing::table_of({{"matrix", {4, 3}}});
  const auto owed = [](int rank) { return std::vector<float>(12, static_cast<float>(1 << rank)); };
  SnapshotOptions options;
  comm::expect_no_errors(comm::run_ranks(5, {}, [&](comm::Communicator& communicator) {
    Residuals residuals(table, {true});
    residuals.write(0, 0.5, owed(communicator.rank()));
    const RankGroup ranks(&communicator);
    const ResidualFile file(ranks, residuals, path("unfinished"));
    if (ranks.first()) {
      file.attach_to(options);
      EXPECT_EQ(file.bytes(), residual_file_bytes(residuals, 5));
      std::filesystem::copy(options.attachments.at(0).path, path("residuals.safetensors"));
    }
  }));
  EXPECT_FALSE(std::filesystem::exists(path("unfinished")));
  for (const int count : {1, 2, 5, 7}) {
    std::vector<float> sum(12);
    std::mutex mutex;
    comm::expect_no_errors(comm::run_ranks(count, {}, [&](comm::Communicator& communicator) {
      Residuals residuals(table, {true});
      EXPECT_EQ(load_residuals(dir_.string(), RankGroup(&communicator), residuals), 5);
      std::vector<float> mine(12);
      residuals.read(0, 0.5, mine);
      const std::lock_guard lock(mutex);
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += mine[i];
      if (count == 5) {
        EXPECT_EQ(mine, owed(communicator.rank()));
      }
    }));
    EXPECT_EQ(sum, std::vector<float>(12, 31.0F)) << count;
  }
}

TEST_F(CompressedRunTest, OnlyBetweenDomains) {
  const TrainSummary all = run(4, to(path("all")), "int8");
  const TrainSummary slow =
      run(4, to(path("slow")), "int8", {"comm.compression_level=\"slow\""}, {0, 0, 1, 1});
  const TrainSummary dense = run(4, to(path("dense")), "none");
  EXPECT_NEAR(*slow.val_loss, *dense.val_loss, 0.05);
  EXPECT_LT(slow.comm_bytes, 0.35 * slow.comm_dense_bytes);
  EXPECT_LT(slow.comm_dense_bytes, all.comm_dense_bytes);
  // With one domain nothing is slow.
  const TrainSummary none =
      run(2, to(path("one")), "int8", {"comm.compression_level=\"slow\""}, {});
  EXPECT_EQ(none.comm_bytes, none.comm_dense_bytes);
}

// Steps that are skipped, and scales that change, in the middle of what is owed.
TEST_F(CompressedRunTest, HalfPrecisionRecovers) {
  const std::vector<std::string> half = {"train.dtype=\"f16\"",
                                         "train.eval_every=0",
                                         "precision.scale_init=1099511627776",
                                         "precision.scale_max=2199023255552",
                                         "precision.max_skips=200",
                                         "train.steps=60"};
  const TrainSummary dense = run(2, to(path("dense")), "none", half);
  for (const char* const mode : kModes) {
    const TrainSummary summary = run(2, to(path(mode)), mode, half);
    EXPECT_GT(summary.steps_non_finite, 0);
    EXPECT_EQ(summary.steps_non_finite, dense.steps_non_finite) << mode;
    EXPECT_NEAR(summary.loss, dense.loss, 0.3) << mode;
  }
}

// A snapshot on one hand, its residuals on the other: damage is found.
TEST_F(CompressedRunTest, DamagedResidualsAreRefused) {
  static_cast<void>(run(2, to(path("run"), 6), "int8"));
  const std::string file = path("run") + "/snapshots/step-00000006/residuals.safetensors";
  ASSERT_TRUE(std::filesystem::exists(file));
  EXPECT_FALSE(std::filesystem::exists(path("run") + "/residuals.unfinished"));
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekp(-1, std::ios::end);
  stream.put('\x7f');
  stream.close();
  const std::vector<Verified> found = verify(path("run"));
  ASSERT_EQ(found.size(), 1U);
  ASSERT_EQ(found[0].problems.size(), 1U);
  EXPECT_NE(found[0].problems[0].find("residuals.safetensors"), std::string::npos);
}

// What was measured is kept when the run goes on, and nothing else is.
TEST_F(CompressedRunTest, OnlyAMeasuredChoiceIsKept) {
  const auto kept = [](const std::string& out) {
    const auto found = find_latest_snapshot(out);
    return found ? load_snapshot_state(found->dir).extra.at("measured_compression") : "no snapshot";
  };
  const std::vector<std::string> pays = {"comm.compression_when=\"pays\""};
  static_cast<void>(run(2, to(path("always"), 2), "int8"));
  EXPECT_EQ(kept(path("always")), "");
  static_cast<void>(run(2, to(path("always"), 4, "auto"), "int8", pays));
  EXPECT_TRUE(log_has(path("always"), "int8 pays for "));
  EXPECT_NE(kept(path("always")), "");
  static_cast<void>(run(2, to(path("always"), 6, "auto"), "int8", pays));
  EXPECT_TRUE(log_has(path("always"), "as before"));
  // Another codec is another measurement.
  static_cast<void>(run(2, to(path("always"), 8, "auto"), "topk", pays));
  EXPECT_TRUE(log_has(path("always"), "topk pays for "));

  // One domain, and then two: until then there was nothing to measure.
  const std::vector<std::string> slow = {pays[0], "comm.compression_level=\"slow\""};
  static_cast<void>(run(2, to(path("slow"), 2), "int8", slow, {}));
  EXPECT_EQ(kept(path("slow")), "");
  static_cast<void>(run(2, to(path("slow"), 4, "auto"), "int8", slow, {0, 1}));
  EXPECT_TRUE(log_has(path("slow"), "int8 pays for "));

  // The same where top-k leaves out too little.
  const std::string dense = "comm.topk_ratio=1.0";
  static_cast<void>(run(2, to(path("dense"), 2), "topk", {pays[0], dense}));
  EXPECT_EQ(kept(path("dense")), "");
}

TEST_F(CompressedRunTest, WhatIsOwedIsDroppedWithAWarning) {
  const std::string dropped = "still owed in the snapshot is dropped";
  static_cast<void>(run(2, to(path("run"), 2), "int8"));
  static_cast<void>(run(2, to(path("run"), 4, "auto"), "int8"));
  EXPECT_FALSE(log_has(path("run"), dropped));
  static_cast<void>(run(2, to(path("run"), 6, "auto"), "none"));
  EXPECT_TRUE(log_has(path("run"), dropped));
}

TEST_F(CompressedRunTest, LeftoversOfASaveThatWasKilledGo) {
  static_cast<void>(run(2, to(path("run"), 2), "int8"));
  for (const char* const name : {"residuals.unfinished", "residuals.unfinished.tmp-12345"}) {
    std::ofstream(path("run") + "/" + name) << "half";
  }
  static_cast<void>(run(2, to(path("run"), 4, "auto"), "int8"));
  for (const auto& entry : std::filesystem::directory_iterator(path("run"))) {
    EXPECT_FALSE(entry.path().filename().string().starts_with("residuals")) << entry.path();
  }
  EXPECT_TRUE(log_has(path("run"), "removed residuals.unfinished.tmp-12345"));
}

TEST_F(CompressedRunTest, NonsenseIsRefused) {
  for (const std::vector<std::string>& overrides :
       {std::vector<std::string>{"comm.compression=\"int8\"", "comm.order_stable=true"},
        {"comm.topk_ratio=0"},
        {"comm.topk_ratio=1.5"},
        {"comm.compression=\"int4\""},
        {"comm.compression_level=\"fast\""}}) {
    try {
      static_cast<void>(config(overrides, 2));
      ADD_FAILURE() << overrides[0];
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::usage);
    }
  }
}

}  // namespace
}  // namespace belay
