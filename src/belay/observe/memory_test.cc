#include "belay/observe/memory.h"

#include <gtest/gtest.h>

#include <memory>

namespace belay {
namespace {

constexpr std::int64_t kMiB = 1 << 20;

TEST(MemoryTest, ResidentBytesFollowWhatIsTouched) {
  const std::int64_t before = resident_bytes();
  ASSERT_GT(before, 0);
  constexpr std::size_t kBytes = 64 << 20;
  const std::unique_ptr<char[]> block(new char[kBytes]);
  // Volatile: a compiler may drop writes to memory that nobody reads, and the memory with them.
  volatile char* const bytes = block.get();
  for (std::size_t at = 0; at < kBytes; at += 4096) bytes[at] = 1;
  EXPECT_GE(resident_bytes(), before + 60 * kMiB);
  EXPECT_GE(peak_resident_bytes(), before + 60 * kMiB);
}

TEST(GrowthWatchTest, SteadyGrowthIsReportedOnceWithItsRate) {
  GrowthWatch watch(1.0);
  int reports = 0;
  for (std::int64_t step = 1; step <= 2000; ++step) {
    // 4 MiB per 1000 steps under sawtooth noise.
    const std::int64_t bytes = 500 * kMiB + step * 4 * kMiB / 1000 + (step % 7) * kMiB;
    if (const auto rate = watch.add(step, bytes)) {
      ++reports;
      EXPECT_NEAR(*rate, 4.0, 0.2);
    }
  }
  EXPECT_EQ(reports, 1);
}

TEST(GrowthWatchTest, NoiseWarmUpAndSingleJumpsAreNotGrowth) {
  GrowthWatch watch(1.0);
  for (std::int64_t step = 1; step <= 3000; ++step) {
    std::int64_t bytes = 500 * kMiB + (step * 7919 % 13) * kMiB;
    if (step < 90) bytes -= (90 - step) * 3 * kMiB;
    if (step > 1000) bytes += 100 * kMiB;
    EXPECT_FALSE(watch.add(step, bytes).has_value()) << step;
  }
}

TEST(GrowthWatchTest, GrowthBelowTheToleranceIsSilent) {
  GrowthWatch watch(1.0);
  for (std::int64_t step = 1; step <= 3000; ++step) {
    EXPECT_FALSE(watch.add(step, 500 * kMiB + step * kMiB / 2000).has_value());
  }
}

}  // namespace
}  // namespace belay
