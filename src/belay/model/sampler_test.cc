#include "belay/model/sampler.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "belay/base/error.h"

namespace belay {
namespace {

const std::vector<float> kLogits = {0.0F, std::log(4.0F), std::log(2.0F), std::log(1.0F), -50.0F};

TEST(SamplerTest, ZeroTemperatureTakesTheLargest) {
  Sampler sampler({.temperature = 0.0});
  for (std::uint64_t i = 0; i < 10; ++i) EXPECT_EQ(sampler.sample(kLogits, i), 1);
}

TEST(SamplerTest, FrequenciesFollowTheSoftmax) {
  Sampler sampler({.temperature = 1.0, .seed = 3});
  std::array<int, 5> counts{};
  constexpr int kDraws = 40000;
  for (std::uint64_t i = 0; i < kDraws; ++i) {
    ++counts[static_cast<std::size_t>(sampler.sample(kLogits, i))];
  }
  EXPECT_NEAR(counts[1] / double{kDraws}, 0.5, 0.01);
  EXPECT_NEAR(counts[2] / double{kDraws}, 0.25, 0.01);
  EXPECT_EQ(counts[4], 0);
}

TEST(SamplerTest, TopKAndTopPCutTheTail) {
  Sampler two({.temperature = 1.0, .top_k = 2});
  Sampler most({.temperature = 1.0, .top_p = 0.6});
  for (std::uint64_t i = 0; i < 2000; ++i) {
    const std::int32_t a = two.sample(kLogits, i);
    EXPECT_TRUE(a == 1 || a == 2);
    const std::int32_t b = most.sample(kLogits, i);
    EXPECT_TRUE(b == 1 || b == 2);
  }
}

TEST(SamplerTest, SameSeedSameToken) {
  Sampler a({.temperature = 1.0, .seed = 5});
  Sampler b({.temperature = 1.0, .seed = 5});
  for (std::uint64_t i = 0; i < 100; ++i) EXPECT_EQ(a.sample(kLogits, i), b.sample(kLogits, i));
}

TEST(SamplerTest, RefusesValuesOutOfRange) {
  EXPECT_THROW(check_sampler({.temperature = -1.0}), Error);
  EXPECT_THROW(check_sampler({.top_k = -1}), Error);
  EXPECT_THROW(check_sampler({.top_p = 0.0}), Error);
  EXPECT_THROW(check_sampler({.top_p = 1.5}), Error);
}

}  // namespace
}  // namespace belay
