#include "belay/base/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace belay {
namespace {

TEST(ParallelTest, EveryPieceRunsExactlyOnce) {
  for (const std::int64_t pieces : {0, 1, 2, 7, 1000}) {
    std::vector<int> runs(static_cast<std::size_t>(pieces));
    parallel_for(pieces, [&](std::int64_t piece) { ++runs[static_cast<std::size_t>(piece)]; });
    for (const int count : runs) EXPECT_EQ(count, 1);
  }
}

TEST(ParallelTest, NestedCallsRunToo) {
  std::atomic<int> runs = 0;
  parallel_for(10, [&](std::int64_t) { parallel_for(10, [&](std::int64_t) { ++runs; }); });
  EXPECT_EQ(runs, 100);
}

TEST(ParallelTest, ThreadIndicesAreInRange) {
  const int threads = thread_count();
  std::atomic<int> wrong = 0;
  parallel_for(1000, [&](std::int64_t) {
    if (thread_index() < 0 || thread_index() >= threads) ++wrong;
  });
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(thread_index(), 0);
}

TEST(ParallelTest, TheNumberOfThreadsCanChange) {
  const int before = thread_count();
  for (const int threads : {1, 3}) {
    set_thread_count(threads);
    EXPECT_EQ(thread_count(), threads);
    std::atomic<std::int64_t> sum = 0;
    parallel_for(100, [&](std::int64_t piece) { sum += piece; });
    EXPECT_EQ(sum, 4950);
  }
  set_thread_count(before);
}

TEST(ParallelTest, SeveralThreadsMayCallAtOnce) {
  std::vector<std::thread> callers;
  std::atomic<std::int64_t> sum = 0;
  for (int caller = 0; caller < 3; ++caller) {
    callers.emplace_back([&] {
      for (int round = 0; round < 20; ++round) {
        parallel_for(50, [&](std::int64_t piece) { sum += piece; });
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(sum, 3 * 20 * 1225);
}

TEST(ParallelTest, PiecesCoverAllItems) {
  EXPECT_EQ(pieces_of(0, 4), 0);
  EXPECT_EQ(pieces_of(8, 4), 2);
  EXPECT_EQ(pieces_of(9, 4), 3);
}

}  // namespace
}  // namespace belay
