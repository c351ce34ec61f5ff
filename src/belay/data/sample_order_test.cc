#include "belay/data/sample_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace belay::data {
namespace {

TEST(SampleOrder, EachEpochHoldsEachSampleOnce) {
  for (const std::int64_t samples : {1, 2, 3, 4, 5, 10, 63, 64, 65, 1000}) {
    const SampleOrder order(7, samples);
    for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
      std::vector<std::int64_t> seen;
      for (std::int64_t i = 0; i < samples; ++i) seen.push_back(order.at(epoch * samples + i));
      std::sort(seen.begin(), seen.end());
      std::vector<std::int64_t> all(static_cast<std::size_t>(samples));
      std::iota(all.begin(), all.end(), 0);
      EXPECT_EQ(seen, all) << samples << " samples, epoch " << epoch;
    }
  }
}

TEST(SampleOrder, DependsOnSeedAndEpochAndOnNothingElse) {
  const auto epoch = [](std::uint64_t seed, std::int64_t number) {
    const SampleOrder order(seed, 100);
    std::vector<std::int64_t> result;
    for (std::int64_t i = 0; i < 100; ++i) result.push_back(order.at(number * 100 + i));
    return result;
  };
  EXPECT_EQ(epoch(1, 0), epoch(1, 0));
  EXPECT_NE(epoch(1, 0), epoch(2, 0));
  EXPECT_NE(epoch(1, 0), epoch(1, 1));
  EXPECT_NE(epoch(1, 0), epoch(1, std::int64_t{1} << 33));
}

// Chi-square of where sample 0 lands over many epochs: 9 degrees of freedom, 0.999 quantile 27.9.
TEST(SampleOrder, SmallSetsAreSpreadEvenly) {
  constexpr std::int64_t kSamples = 10;
  constexpr std::int64_t kEpochs = 5000;
  const SampleOrder order(3, kSamples);
  std::vector<double> landed(kSamples);
  for (std::int64_t epoch = 0; epoch < kEpochs; ++epoch) {
    for (std::int64_t i = 0; i < kSamples; ++i) {
      if (order.at(epoch * kSamples + i) == 0) landed[static_cast<std::size_t>(i)] += 1.0;
    }
  }
  const double expected = static_cast<double>(kEpochs) / kSamples;
  double chi_square = 0.0;
  for (const double count : landed)
    chi_square += (count - expected) * (count - expected) / expected;
  EXPECT_LT(chi_square, 27.9);
}

TEST(SampleOrder, HugeSetsStayInRange) {
  const SampleOrder order(9, (std::int64_t{1} << 40) + 12345);
  for (std::int64_t i = 0; i < 1000; ++i) {
    const std::int64_t sample = order.at(i * 7919);
    EXPECT_GE(sample, 0);
    EXPECT_LT(sample, order.samples());
  }
}

}  // namespace
}  // namespace belay::data
