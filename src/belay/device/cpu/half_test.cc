// The vectorised conversions between f16 and f32 give the bits of the scalar ones, under every
// instruction set that this processor has.

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "belay/device/cpu/attention/run_candidate.h"
#include "belay/device/host_pool.h"

namespace belay {
namespace {

using attention::ForEachTarget;

class HalfTargetTest : public ForEachTarget {};

TEST_P(HalfTargetTest, WidensEveryHalf) {
  constexpr std::int64_t kCount = 65536;
  HostPool pool;
  const CastArgs cast{pool.allocate(DType::f16, {kCount}), pool.allocate(DType::f32, {kCount})};
  for (std::int64_t i = 0; i < kCount; ++i) {
    cast.src.as<F16>()[i].bits = static_cast<std::uint16_t>(i);
  }
  attention::run_accepted("simd", cast);
  for (std::int64_t i = 0; i < kCount; ++i) {
    ASSERT_EQ(std::bit_cast<std::uint32_t>(cast.dst.as<float>()[i]),
              std::bit_cast<std::uint32_t>(to_float(cast.src.as<F16>()[i])))
        << i;
  }
}

// The midpoints of neighbouring halves and their own neighbours, every exponent of f32, NaN with
// every payload bit that survives.
std::vector<float> difficult() {
  std::vector<float> values;
  const auto add = [&](float value) {
    for (const float sign : {1.0F, -1.0F}) values.push_back(std::copysign(value, sign));
  };
  for (std::uint32_t bits = 0; bits < 0x7c00U; ++bits) {
    const float low = to_float(F16{static_cast<std::uint16_t>(bits)});
    const float high =
        bits == 0x7bffU ? 65536.0F : to_float(F16{static_cast<std::uint16_t>(bits + 1)});
    const float middle = (low + high) / 2;
    for (const float value :
         {low, middle, std::nextafter(middle, 0.0F), std::nextafter(middle, 1e30F)}) {
      add(value);
    }
  }
  for (std::uint32_t exponent = 0; exponent < 256; ++exponent) {
    for (const std::uint32_t fraction : {0U, 1U, 0x1000U, 0x2fffU, 0x400000U, 0x7fffffU}) {
      add(std::bit_cast<float>(exponent << 23 | fraction));
    }
  }
  for (std::uint32_t fraction = 1; fraction < 0x800000U; fraction += 0x1555U) {
    add(std::bit_cast<float>(0x7f800000U | fraction));
  }
  return values;
}

TEST_P(HalfTargetTest, NarrowsDifficultValues) {
  std::vector<float> values = difficult();
  const auto count = static_cast<std::int64_t>(values.size());
  HostPool pool;
  const CastArgs cast{{values.data(), DType::f32, {count}}, pool.allocate(DType::f16, {count})};
  attention::run_accepted("simd", cast);
  for (std::int64_t i = 0; i < count; ++i) {
    ASSERT_EQ(cast.dst.as<F16>()[i].bits, to_f16(values[static_cast<std::size_t>(i)]).bits)
        << std::bit_cast<std::uint32_t>(values[static_cast<std::size_t>(i)]);
  }
}

INSTANTIATE_TEST_SUITE_P(HalfTest, HalfTargetTest, testing::ValuesIn(attention::targets()),
                         attention::target_name);

}  // namespace
}  // namespace belay
