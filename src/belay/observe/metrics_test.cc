#include "belay/observe/metrics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "belay/base/error.h"
#include "belay/observe/fields.h"
#include "belay/observe/sinks.h"

namespace belay {
namespace {

using Json = nlohmann::json;

class MetricsFileTest : public ::testing::Test {
 protected:
  MetricsFileTest() { std::filesystem::remove(path_); }
  std::string path_ = ::testing::TempDir() + "belay_metrics_test.jsonl";

  std::vector<Json> lines() {
    std::vector<Json> result;
    std::ifstream file(path_);
    for (std::string line; std::getline(file, line);) result.push_back(Json::parse(line));
    return result;
  }
};

TEST_F(MetricsFileTest, AStepHasTheDocumentedFields) {
  const auto sink = make_jsonl_sink(path_, 0);
  sink->step({.step = 3, .tokens = 1536, .loss = 0.1, .lr = 1e-3, .rss_bytes = 1 << 20});
  // Every record is in the file at once, not only after close().
  const auto records = lines();
  ASSERT_EQ(records.size(), 1U);
  for (const char* const name :
       {"step", "tokens", "loss", "lr", "grad_norm", "step_ms", "data_ms", "forward_ms",
        "backward_ms", "optimizer_ms", "tokens_per_s", "model_flops_per_s", "rss_bytes"}) {
    EXPECT_TRUE(records[0].contains(name)) << name;
  }
  EXPECT_EQ(records[0]["step"], 3);
  EXPECT_EQ(records[0]["loss"], 0.1) << "numbers read back exactly";
  EXPECT_FALSE(records[0].contains("non_finite"));
}

TEST_F(MetricsFileTest, NumbersThatAreNotFiniteAreNullAndFlagged) {
  const auto sink = make_jsonl_sink(path_, 0);
  sink->step(
      {.step = 1, .loss = std::nan(""), .grad_norm = std::numeric_limits<double>::infinity()});
  const auto records = lines();
  ASSERT_EQ(records.size(), 1U);
  EXPECT_TRUE(records[0]["loss"].is_null());
  EXPECT_TRUE(records[0]["grad_norm"].is_null());
  EXPECT_EQ(records[0]["non_finite"], Json({"loss", "grad_norm"}));
}

TEST_F(MetricsFileTest, ExtremeNumbersFitTheLine) {
  const double longest = -std::numeric_limits<double>::denorm_min();
  const std::int64_t large = std::numeric_limits<std::int64_t>::min();
  const auto sink = make_jsonl_sink(path_, 0);
  StepMetrics metrics;
  for (const IntegerField& field : kIntegerFields) metrics.*field.member = large;
  for (const RealField& field : kRealFields) metrics.*field.member = longest;
  sink->step(metrics);
  EXPECT_EQ(lines()[0]["optimizer_ms"], longest);
}

TEST_F(MetricsFileTest, EvaluationsAndSnapshotsHaveTheirOwnRecords) {
  const auto sink = make_jsonl_sink(path_, 0);
  sink->evaluation({.step = 10, .loss = 2.5, .tokens = 1003, .ms = 12.5});
  sink->snapshot({.step = 10, .bytes = 4096, .ms = 3});
  const auto records = lines();
  EXPECT_EQ(records[0],
            Json::parse(R"({"step":10,"val_loss":2.5,"val_tokens":1003,"eval_ms":12.5})"));
  EXPECT_EQ(records[1], Json::parse(R"({"step":10,"snapshot_bytes":4096,"snapshot_ms":3.0})"));
}

TEST_F(MetricsFileTest, ASkippedStepNamesWhatWentWrong) {
  MetricHub hub(1);
  hub.add(make_jsonl_sink(path_, 0));
  hub.skipped_step({.step = 7,
                    .tensor = "layers.1.ffn.up.weight",
                    .layer = "layers.1",
                    .rank = 0,
                    .loss_scale = 65536,
                    .next_scale = 32768});
  EXPECT_EQ(lines()[0], Json::parse(R"({"step":7,"skipped_tensor":"layers.1.ffn.up.weight",
      "skipped_layer":"layers.1","rank":0,"skipped_scale":65536.0,"next_scale":32768.0})"));
}

TEST_F(MetricsFileTest, AResumedRunContinuesAsIfNeverInterrupted) {
  {
    const auto sink = make_jsonl_sink(path_, 0);
    for (std::int64_t step = 1; step <= 5; ++step) sink->step({.step = step});
    sink->evaluation({.step = 5});
  }
  std::ofstream(path_, std::ios::app) << "{\"step\":6,\"lo";
  const auto sink = make_jsonl_sink(path_, 3);
  sink->step({.step = 4, .loss = 7});
  const auto records = lines();
  ASSERT_EQ(records.size(), 4U);
  EXPECT_EQ(records[2]["step"], 3);
  EXPECT_EQ(records[3]["loss"], 7.0);
}

TEST(MetricsFileErrorTest, AnUnwritablePathIsNamed) {
  try {
    make_jsonl_sink("/nonexistent/metrics.jsonl", 0);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::data);
    EXPECT_NE(std::string(error.what()).find("/nonexistent/metrics.jsonl"), std::string::npos);
  }
}

TEST(MetricsFileErrorTest, AFullDiskIsACapacityError) {
  const auto sink = make_jsonl_sink("/dev/full", 1);
  try {
    sink->step({.step = 2});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::capacity);
  }
}

class Recorder final : public MetricSink {
 public:
  explicit Recorder(std::vector<StepMetrics>& steps) : steps_(steps) {}
  void step(const StepMetrics& metrics) override { steps_.push_back(metrics); }
  void evaluation(const EvaluationMetrics&) override {}
  void snapshot(const SnapshotMetrics&) override {}

 private:
  std::vector<StepMetrics>& steps_;
};

// A sink whose disk is full.
class Failing final : public MetricSink {
 public:
  explicit Failing(int& closed) : closed_(closed) {}
  void step(const StepMetrics&) override { fail(ExitCode::capacity, "no room"); }
  void evaluation(const EvaluationMetrics&) override {}
  void snapshot(const SnapshotMetrics&) override {}
  void close() override {
    ++closed_;
    fail(ExitCode::capacity, "no room for the end either");
  }

 private:
  int& closed_;
};

// The error that ends a run is the one that is seen, whatever sinks say to its last record.
TEST(MetricHubTest, SinksThatFailDoNotStandInTheWayOfAnError) {
  int closed = 0;
  try {
    MetricHub hub(10);
    hub.add(std::make_unique<Failing>(closed));
    hub.add(std::make_unique<Failing>(closed));
    hub.step({.step = 1});
    fail(ExitCode::numerics, "the loss is not finite");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::numerics);
  }
  EXPECT_EQ(closed, 2);
}

TEST(MetricHubTest, ClosingReachesAllSinksAndSaysWhatFailedFirst) {
  int closed = 0;
  MetricHub hub(10);
  hub.add(std::make_unique<Failing>(closed));
  hub.add(std::make_unique<Failing>(closed));
  hub.step({.step = 1});
  try {
    hub.close();
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "no room");
  }
  EXPECT_EQ(closed, 2);
  hub.close();  // has nothing left
  EXPECT_EQ(closed, 2);
}

TEST(MetricHubTest, RatesComeFromTheSameWindowAsTheStepTime) {
  std::vector<StepMetrics> records;
  MetricHub hub(2);
  hub.add(std::make_unique<Recorder>(records));
  for (std::int64_t step = 1; step <= 4; ++step) {
    // The second window is twice as slow; a snapshot in between does not enter any rate.
    const double ms = step <= 2 ? 10.0 : 20.0;
    hub.step({.step = step,
              .tokens = step * 512,
              .step_tokens = 512,
              .loss = static_cast<double>(step),
              .step_ms = ms + (step % 2 == 0 ? 1.0 : -1.0),
              .forward_ms = ms / 2,
              .model_flops = 1e9});
    hub.snapshot({.step = step, .bytes = 1, .ms = 2000});
  }
  ASSERT_EQ(records.size(), 2U);
  EXPECT_DOUBLE_EQ(records[0].step_ms, 10.0);
  EXPECT_DOUBLE_EQ(records[0].forward_ms, 5.0);
  EXPECT_DOUBLE_EQ(records[0].tokens_per_s, 51200.0);
  EXPECT_DOUBLE_EQ(records[0].model_flops_per_s, 1e11);
  EXPECT_DOUBLE_EQ(records[1].tokens_per_s, 25600.0);
  EXPECT_EQ(records[1].loss, 4.0);
  EXPECT_EQ(records[1].tokens, 2048);
}

}  // namespace
}  // namespace belay
