#pragma once
// Element types and the scalar conversions between them. bf16 and f16 are stored as bits; rounding
// is to nearest even, NaN stays NaN. Conversions from and to f16 follow IEEE 754 and give the bits
// that processors give: subnormals are kept, overflow becomes infinity, NaN becomes quiet and keeps
// the upper bits of its payload.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace belay {

enum class DType : std::uint8_t { f64, f32, bf16, f16, i64, i32, u16, u8 };

constexpr std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
    case DType::i64:
      return 8;
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::bf16:
    case DType::f16:
    case DType::u16:
      return 2;
    case DType::u8:
      return 1;
  }
  return 0;
}

// What activations and weights are stored as.
constexpr bool is_storage(DType dtype) {
  return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16;
}

// "f32", "bf16", ...: the spelling used in configs and messages.
std::string_view name_of(DType dtype);
std::optional<DType> parse_dtype(std::string_view name);

struct Bf16 {
  std::uint16_t bits;
};
struct F16 {
  std::uint16_t bits;
};

inline float to_float(Bf16 value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}

inline Bf16 to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) {
    return {static_cast<std::uint16_t>((bits >> 16) | 0x0040U)};
  }
  return {static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16)};
}

inline float to_float(F16 value) {
  const std::uint32_t sign = (value.bits & 0x8000U) << 16;
  const std::uint32_t exponent = (value.bits >> 10) & 0x1fU;
  const std::uint32_t mantissa = value.bits & 0x3ffU;
  if (exponent == 0x1fU) {
    const std::uint32_t quiet = mantissa != 0 ? 0x00400000U : 0U;
    return std::bit_cast<float>(sign | 0x7f800000U | quiet | (mantissa << 13));
  }
  if (exponent == 0) {
    // Zero and subnormals: mantissa * 2^-24, exact in f32.
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;
    return sign != 0 ? -magnitude : magnitude;
  }
  return std::bit_cast<float>(sign | ((exponent + 112U) << 23) | (mantissa << 13));
}

inline F16 to_f16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000U);
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  if (magnitude > 0x7f800000U) {
    return {static_cast<std::uint16_t>(sign | 0x7e00U | ((magnitude >> 13) & 0x3ffU))};
  }
  if (magnitude >= 0x477ff000U) return {static_cast<std::uint16_t>(sign | 0x7c00U)};
  if (magnitude < 0x38800000U) {
    // Subnormal result: let the FPU round at the right bit by adding 0.5 (ulp 2^-24).
    const float rounded = std::bit_cast<float>(magnitude) + 0.5F;
    return {
        static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(rounded) - 0x3f000000U))};
  }
  const std::uint32_t rounded = magnitude + 0xfffU + ((magnitude >> 13) & 1U) - 0x38000000U;
  return {static_cast<std::uint16_t>(sign | (rounded >> 13))};
}

// The largest finite f16.
inline constexpr float kLargestF16 = 65504.0F;

}  // namespace belay
