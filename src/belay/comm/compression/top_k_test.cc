#include "belay/comm/compression/top_k.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

namespace belay::comm {
namespace {

// The definition: by falling magnitude, then by place.
std::vector<std::uint32_t> defined(const std::vector<float>& values, std::int64_t k) {
  std::vector<std::uint32_t> order(values.size());
  std::iota(order.begin(), order.end(), 0U);
  const auto rank = [&](std::uint32_t index) {
    const float magnitude = std::abs(values[index]);
    return std::isnan(magnitude) ? std::numeric_limits<double>::infinity()
                                 : static_cast<double>(magnitude);
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return rank(a) > rank(b); });
  order.resize(static_cast<std::size_t>(k));
  std::sort(order.begin(), order.end());
  return order;
}

std::vector<std::uint32_t> selected(const std::vector<float>& values, std::int64_t k) {
  TopK top(std::ssize(values));
  const auto view = top.select(values, k);
  return {view.begin(), view.end()};
}

TEST(TopKTest, TakesTheLargestMagnitudes) {
  std::mt19937 random(3);
  for (const std::int64_t count : {1, 2, 17, 1000, 16384, 50001}) {
    std::normal_distribution<float> normal;
    std::vector<float> values(static_cast<std::size_t>(count));
    for (float& value : values) value = normal(random);
    for (const double ratio : {1e-9, 0.001, 0.01, 0.1, 0.5, 1.0}) {
      const std::int64_t k = share_of(count, ratio);
      EXPECT_EQ(selected(values, k), defined(values, k)) << count << " x " << ratio;
    }
  }
}

TEST(TopKTest, OfEqualMagnitudesTheFirst) {
  std::vector<float> values(40000);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(i % 5) * (i % 2 == 0 ? 1.0F : -1.0F);
  }
  for (const std::int64_t k : {1, 3, 100, 7999, 8000, 8001, 39999, 40000}) {
    EXPECT_EQ(selected(values, k), defined(values, k)) << k;
  }
  EXPECT_EQ(selected(std::vector<float>(20000, 1.0F), 3), (std::vector<std::uint32_t>{0, 1, 2}));
  EXPECT_EQ(selected(std::vector<float>(5, 0.0F), 2), (std::vector<std::uint32_t>{0, 1}));
}

// The sample sees nothing but the small values, or nothing but the large ones.
TEST(TopKTest, SamplesThatMislead) {
  for (const bool large : {false, true}) {
    std::vector<float> values(1 << 18);
    const std::size_t stride = values.size() / 4096;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const bool sampled = i % stride == 0;
      values[i] = static_cast<float>(i + 1) * (sampled == large ? 1.0F : 1e-9F);
    }
    for (const std::int64_t k : {10, 5000, 100000}) {
      EXPECT_EQ(selected(values, k), defined(values, k)) << large << " " << k;
    }
  }
}

TEST(TopKTest, WhatIsNotFiniteIsNeverLeftBehind) {
  std::vector<float> values(30000, 1e38F);
  values[29999] = -std::numeric_limits<float>::infinity();
  values[12345] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(selected(values, 2), (std::vector<std::uint32_t>{12345, 29999}));
}

TEST(TopKTest, WhatIsLeftShrinks) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  std::vector<float> values(9973);
  for (float& value : values) value = normal(random);
  for (const double ratio : {0.01, 0.1, 0.3}) {
    const std::int64_t k = share_of(std::ssize(values), ratio);
    std::vector<float> left = values;
    for (const std::uint32_t index : selected(values, k)) left[index] = 0;
    const auto squares = [](const std::vector<float>& v) {
      return std::inner_product(v.begin(), v.end(), v.begin(), 0.0);
    };
    const double kept = 1 - static_cast<double>(k) / static_cast<double>(values.size());
    EXPECT_LE(squares(left), kept * squares(values));
  }
}

TEST(TopKTest, Shares) {
  EXPECT_EQ(share_of(1000, 0.01), 10);
  EXPECT_EQ(share_of(10, 0.01), 1);
  EXPECT_EQ(share_of(10, 1.0), 10);
}

}  // namespace
}  // namespace belay::comm
