#include "belay/base/dtype.h"

#include <gtest/gtest.h>

#include <cmath>

namespace belay {
namespace {

TEST(DTypeTest, EveryF16SurvivesARoundTrip) {
  for (std::uint32_t bits = 0; bits < 0x10000U; ++bits) {
    const F16 half{static_cast<std::uint16_t>(bits)};
    const float value = to_float(half);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(to_float(to_f16(value))));
    } else {
      EXPECT_EQ(to_f16(value).bits, half.bits);
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
