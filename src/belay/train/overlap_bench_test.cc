#include "belay/train/overlap_bench.h"

#include <gtest/gtest.h>

#include "belay/base/parallel.h"
#include "belay/parallel/batch_share.h"
#include "belay/parallel/bucket_reducer.h"

namespace belay {
namespace {

class OverlapBenchTest : public ::testing::Test {
 protected:
  void TearDown() override { set_thread_count(threads_); }

  [[nodiscard]] static OverlapReport bench(std::int64_t micro_batches) {
    OverlapBench options;
    options.rows = 1;
    options.seq_len = 16;
    options.micro_batches = micro_batches;
    options.repetitions = 2;
    const auto world = comm::World::join();
    return bench_overlap(*world, 2, options);
  }

 private:
  const int threads_ = thread_count();  // the benchmark sets it
};

TEST_F(OverlapBenchTest, EveryWayHasARow) {
  const OverlapReport report = bench(3);
  EXPECT_EQ(report.ranks, 2);
  EXPECT_GT(report.parameters, 0);
  ASSERT_EQ(report.rows.size(), 3U);
  const double once = sum_traffic(report.parameters, 2);
  EXPECT_EQ(report.rows[0].bytes, once);
  EXPECT_EQ(report.rows[1].bytes, once);
  EXPECT_EQ(report.rows[2].bytes, 3 * once);  // every micro-batch
  for (const OverlapRow& row : report.rows) {
    SCOPED_TRACE(row.mode);
    EXPECT_GT(row.bandwidth, 0);
    EXPECT_GT(row.compute_ms, 0);
    EXPECT_GT(row.comm_ms, 0);
    ASSERT_EQ(row.hidden_of_each.size(), 2U);
    for (const double share : {row.hidden, row.hidden_of_each[0], row.hidden_of_each[1]}) {
      EXPECT_GE(share, 0);
      EXPECT_LE(share, 1);
    }
  }
}

TEST_F(OverlapBenchTest, OneMicroBatchHasNoPipeline) {
  const OverlapReport report = bench(1);
  ASSERT_EQ(report.rows.size(), 2U);
  EXPECT_EQ(report.rows[1].mode, "during the last backward");
}

}  // namespace
}  // namespace belay
