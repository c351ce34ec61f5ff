#include "belay/comm/compression/block_quantiser.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace belay::comm {
namespace {

struct Coded {
  std::vector<std::int8_t> codes;
  std::vector<float> scales;
  std::vector<float> errors;
  std::vector<float> decoded;

  explicit Coded(const std::vector<float>& values)
      : codes(static_cast<std::size_t>(quant_blocks(std::ssize(values)) * kQuantBlock)),
        scales(static_cast<std::size_t>(quant_blocks(std::ssize(values)))),
        errors(values.size()),
        decoded(values.size()) {
    quantise(values.data(), std::ssize(values), codes.data(), scales.data(), errors.data());
    dequantise(codes.data(), scales.data(), std::ssize(values), decoded.data());
  }
};

std::vector<float> noise(std::int64_t count, float scale, unsigned seed = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

TEST(BlockQuantiserTest, ErrorsAreWithinHalfACode) {
  for (const std::int64_t count : {1, 7, 255, 256, 257, 1000, 4096}) {
    // Large, ordinary, and where only subnormal numbers are left.
    for (const float scale : {1e30F, 1.0F, 1e-20F, 1e-37F, 1e-41F}) {
      const std::vector<float> values = noise(count, scale);
      const Coded coded(values);
      for (std::size_t i = 0; i < values.size(); ++i) {
        const float unit = coded.scales[i / kQuantBlock];
        EXPECT_LE(std::abs(values[i] - coded.decoded[i]), unit / 254 * 1.0001F + 3e-45F);
        EXPECT_EQ(coded.errors[i], values[i] - coded.decoded[i]) << scale << " " << i;
      }
    }
  }
}

TEST(BlockQuantiserTest, ZerosConstantsAndExtremesAreExact) {
  for (const float value : {0.0F, 3.14159F, -1e-30F, 1e-44F, std::numeric_limits<float>::max()}) {
    std::vector<float> values(600, value);
    EXPECT_EQ(Coded(values).decoded, values) << value;
    // Two values, of opposite signs, and zeros between them.
    for (std::size_t i = 0; i < values.size(); i += 3) values[i] = -value;
    for (std::size_t i = 1; i < values.size(); i += 3) values[i] = 0;
    EXPECT_EQ(Coded(values).decoded, values) << value;
  }
}

TEST(BlockQuantiserTest, ABadBlockShowsAndLeavesTheOthersAlone) {
  const std::vector<float> good = noise(1000, 1);
  const Coded before(good);
  for (const float bad :
       {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
        std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::signaling_NaN()}) {
    for (const std::size_t place : {300U, 999U}) {
      std::vector<float> values = good;
      values[place] = bad;
      const Coded coded(values);
      for (std::size_t i = 0; i < values.size(); ++i) {
        if (i / kQuantBlock == place / kQuantBlock) {
          EXPECT_TRUE(std::isnan(coded.decoded[i])) << i;
        } else {
          EXPECT_EQ(coded.decoded[i], before.decoded[i]) << i;
        }
      }
    }
  }
}

TEST(BlockQuantiserTest, AddsWhatItDecodes) {
  const std::vector<float> values = noise(700, 2);
  const Coded coded(values);
  std::vector<float> sum = noise(700, 1, 9);
  const std::vector<float> start = sum;
  add_dequantised(coded.codes.data(), coded.scales.data(), 700, sum.data());
  for (std::size_t i = 0; i < sum.size(); ++i) EXPECT_EQ(sum[i], start[i] + coded.decoded[i]);
}

TEST(BlockQuantiserTest, ErrorsMayTakeThePlaceOfValues) {
  std::vector<float> values = noise(515, 1);
  const Coded apart(values);
  std::vector<std::int8_t> codes(apart.codes.size());
  std::vector<float> scales(apart.scales.size());
  quantise(values.data(), 515, codes.data(), scales.data(), values.data());
  EXPECT_EQ(values, apart.errors);
  EXPECT_EQ(codes, apart.codes);
}

TEST(BlockQuantiserTest, ScaledSums) {
  const std::vector<float> first = noise(77, 1);
  const std::vector<float> second = noise(77, 1, 2);
  std::vector<float> sum = second;
  add_scaled(first.data(), sum.data(), 0.25F, sum.data(), 77);
  for (std::size_t i = 0; i < sum.size(); ++i) EXPECT_EQ(sum[i], first[i] + second[i] * 0.25F);
}

}  // namespace
}  // namespace belay::comm
