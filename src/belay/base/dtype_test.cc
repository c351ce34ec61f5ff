#include "belay/base/dtype.h"

#include <gtest/gtest.h>

#include <cmath>

namespace belay {
namespace {

// Every f16 from the definition of the format (IEEE 754, 3.6): 1 sign, 5 exponent, 10 fraction
// bits. NaN becomes quiet and keeps its payload.
TEST(DTypeTest, EveryF16WidensToItsValueAndSurvivesARoundTrip) {
  for (std::uint32_t bits = 0; bits < 0x10000U; ++bits) {
    const F16 half{static_cast<std::uint16_t>(bits)};
    const int exponent = static_cast<int>(bits >> 10) & 31;
    const std::uint32_t fraction = bits & 0x3ffU;
    const std::uint32_t sign = (bits & 0x8000U) << 16;
    std::uint32_t wide = 0;
    if (exponent == 31) {
      wide = sign | 0x7f800000U | fraction << 13 | (fraction != 0 ? 0x400000U : 0U);
    } else {
      const double magnitude =
          exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024.0 + fraction, exponent - 25);
      wide = sign | std::bit_cast<std::uint32_t>(static_cast<float>(magnitude));
    }
    ASSERT_EQ(std::bit_cast<std::uint32_t>(to_float(half)), wide) << bits;
    const bool nan = exponent == 31 && fraction != 0;
    ASSERT_EQ(to_f16(to_float(half)).bits, nan ? bits | 0x200U : bits) << bits;
  }
}

// Around every midpoint of two neighbouring f16: the midpoint goes to the even one, anything on
// either side to the nearer one. The neighbour of the largest is 65536, which is infinity.
TEST(DTypeTest, F16RoundsRightAroundEveryMidpoint) {
  for (std::uint32_t bits = 0; bits < 0x7c00U; ++bits) {
    const double low = static_cast<double>(to_float(F16{static_cast<std::uint16_t>(bits)}));
    const double high =
        bits == 0x7bffU ? 65536.0
                        : static_cast<double>(to_float(F16{static_cast<std::uint16_t>(bits + 1)}));
    const auto middle = static_cast<float>((low + high) / 2);
    ASSERT_EQ(static_cast<double>(middle), (low + high) / 2);
    for (const std::uint32_t sign : {0U, 0x8000U}) {
      const float factor = sign == 0 ? 1.0F : -1.0F;
      ASSERT_EQ(to_f16(factor * middle).bits, sign | (bits + (bits & 1U)));
      ASSERT_EQ(to_f16(factor * std::nextafter(middle, 0.0F)).bits, sign | bits);
      ASSERT_EQ(to_f16(factor * std::nextafter(middle, 1e30F)).bits, sign | (bits + 1));
    }
  }
}

TEST(DTypeTest, F16RoundsToNearestEvenAndOverflowsToInfinity) {
  EXPECT_EQ(to_f16(2049.0F).bits, to_f16(2048.0F).bits);
  EXPECT_EQ(to_f16(2051.0F).bits, to_f16(2052.0F).bits);
  EXPECT_EQ(to_f16(65519.0F).bits, 0x7bffU);
  EXPECT_EQ(to_f16(65520.0F).bits, 0x7c00U);
  EXPECT_EQ(to_f16(0x1p-25F).bits, 0U);
  EXPECT_EQ(to_f16(-0x1.8p-25F).bits, 0x8001U);
}

TEST(DTypeTest, Bf16RoundsToNearestEvenAndKeepsNan) {
  EXPECT_EQ(to_bf16(1.0F).bits, 0x3f80U);
  EXPECT_EQ(to_bf16(std::bit_cast<float>(0x3f808000U)).bits, 0x3f80U);
  EXPECT_EQ(to_bf16(std::bit_cast<float>(0x3f818000U)).bits, 0x3f82U);
  EXPECT_TRUE(std::isnan(to_float(to_bf16(std::bit_cast<float>(0x7f800001U)))));
}

TEST(DTypeTest, NamesParseBack) {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16, DType::i32}) {
    EXPECT_EQ(parse_dtype(name_of(dtype)), dtype);
  }
  EXPECT_FALSE(parse_dtype("float").has_value());
}

}  // namespace
}  // namespace belay
