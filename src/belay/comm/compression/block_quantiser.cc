#include "belay/comm/compression/block_quantiser.h"

#include <algorithm>
#include <cstring>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "belay/comm/compression/block_quantiser.cc"
// foreach_target.h compiles this file again per instruction set, so the order matters.
// clang-format off
#include "belay/base/simd_targets.h"
#include "hwy/foreach_target.h"
#include "belay/device/cpu/simd.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace belay::comm::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace simd = belay::HWY_NAMESPACE;
using simd::kF32;
using simd::U32;
using simd::Vec;
using Codes = hn::Rebind<std::int8_t, simd::F32>;
using Whole32 = hn::RebindToSigned<simd::F32>;

constexpr float kLargestCode = 127.0F;
constexpr float kPerCode = 1.0F / kLargestCode;
static_assert(kLargestCode * kPerCode == 1.0F, "the largest magnitude decodes to itself");
constexpr std::uint32_t kMagnitude = 0x7fffffffU;
constexpr std::uint32_t kInfinity = 0x7f800000U;

// The bits of the largest magnitude: as numbers they order like the magnitudes, NaN above all.
HWY_INLINE std::uint32_t largest_bits(const float* values) {
  const U32 d;
  const auto mask = hn::Set(d, kMagnitude);
  const std::int64_t step = simd::lanes();
  auto largest = hn::Zero(d);
  for (std::int64_t i = 0; i < kQuantBlock; i += step) {
    const auto bits = hn::BitCast(d, hn::LoadU(kF32, values + i));
    largest = hn::Max(largest, hn::And(bits, mask));
  }
  HWY_ALIGN std::uint32_t lanes[hn::MaxLanes(d)];
  hn::Store(largest, d, lanes);
  return *std::max_element(lanes, lanes + step);
}

HWY_INLINE Vec decoded(const std::int8_t* codes, Vec scale) {
  const auto wide = hn::PromoteTo(Whole32(), hn::LoadU(Codes(), codes));
  return hn::Mul(hn::Mul(hn::ConvertTo(kF32, wide), hn::Set(kF32, kPerCode)), scale);
}

// One whole block. Returns its scale.
HWY_INLINE float quantise_block(const float* values, std::int8_t* codes, float* errors) {
  const std::uint32_t bits = largest_bits(values);
  if (bits >= kInfinity) {
    std::memset(codes, 1, static_cast<std::size_t>(kQuantBlock));
    return std::numeric_limits<float>::quiet_NaN();
  }
  float scale = 0;
  std::memcpy(&scale, &bits, sizeof(scale));
  // The reciprocal of a very small number would be infinite.
  const float lift = scale < 0x1p-100F ? 0x1p64F : 1.0F;
  const float per_unit = scale > 0 ? kLargestCode / (scale * lift) : 0.0F;
  const std::int64_t step = simd::lanes();
  const Vec lifted = hn::Set(kF32, lift);
  const Vec by = hn::Set(kF32, per_unit);
  const Vec unit = hn::Set(kF32, scale);
  for (std::int64_t i = 0; i < kQuantBlock; i += step) {
    const Vec value = hn::LoadU(kF32, values + i);
    const auto code = hn::NearestInt(hn::Mul(hn::Mul(value, lifted), by));
    hn::StoreU(hn::DemoteTo(Codes(), code), Codes(), codes + i);
    if (errors != nullptr) {
      hn::StoreU(hn::Sub(value, decoded(codes + i, unit)), kF32, errors + i);
    }
  }
  return scale;
}

void quantise_run(const float* values, std::int64_t count, std::int8_t* codes, float* scales,
                  float* errors) {
  std::int64_t i = 0;
  for (; i + kQuantBlock <= count; i += kQuantBlock) {
    *scales++ = quantise_block(values + i, codes + i, errors == nullptr ? nullptr : errors + i);
  }
  if (i == count) return;
  float last[kQuantBlock] = {};
  const auto bytes = static_cast<std::size_t>(count - i) * sizeof(float);
  std::memcpy(last, values + i, bytes);
  *scales = quantise_block(last, codes + i, last);
  if (errors != nullptr) std::memcpy(errors + i, last, bytes);
}

template <bool add>
HWY_INLINE void decode_run(const std::int8_t* codes, const float* scales, std::int64_t count,
                           float* dst) {
  const auto value_at = [&](std::int64_t i, Vec scale)
                            HWY_ATTR { return decoded(codes + i, scale); };
  const std::int64_t step = simd::lanes();
  std::int64_t i = 0;
  for (; i + kQuantBlock <= count; i += kQuantBlock) {
    const Vec scale = hn::Set(kF32, *scales++);
    for (std::int64_t j = i; j < i + kQuantBlock; j += step) {
      Vec value = value_at(j, scale);
      if constexpr (add) value = hn::Add(hn::LoadU(kF32, dst + j), value);
      hn::StoreU(value, kF32, dst + j);
    }
  }
  if (i == count) return;
  float last[kQuantBlock];
  const Vec scale = hn::Set(kF32, *scales);
  for (std::int64_t j = 0; j < kQuantBlock; j += step) {
    hn::StoreU(value_at(i + j, scale), kF32, last + j);
  }
  for (std::int64_t j = i; j < count; ++j) {
    if constexpr (add) {
      dst[j] += last[j - i];
    } else {
      dst[j] = last[j - i];
    }
  }
}

void dequantise_run(const std::int8_t* codes, const float* scales, std::int64_t count, float* dst) {
  decode_run<false>(codes, scales, count, dst);
}

void add_dequantised_run(const std::int8_t* codes, const float* scales, std::int64_t count,
                         float* dst) {
  decode_run<true>(codes, scales, count, dst);
}

void add_scaled_run(const float* first, const float* second, float factor, float* dst,
                    std::int64_t count) {
  const Vec by = hn::Set(kF32, factor);
  simd::for_vectors(count, [&](auto access, std::int64_t i) HWY_ATTR {
    access.store(hn::Add(access.load(first + i), hn::Mul(access.load(second + i), by)), dst + i);
  });
}

}  // namespace belay::comm::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace belay::comm {
namespace {

HWY_EXPORT(quantise_run);
HWY_EXPORT(dequantise_run);
HWY_EXPORT(add_dequantised_run);
HWY_EXPORT(add_scaled_run);

}  // namespace

void quantise(const float* values, std::int64_t count, std::int8_t* codes, float* scales,
              float* errors) {
  HWY_DYNAMIC_DISPATCH(quantise_run)(values, count, codes, scales, errors);
}

void dequantise(const std::int8_t* codes, const float* scales, std::int64_t count, float* dst) {
  HWY_DYNAMIC_DISPATCH(dequantise_run)(codes, scales, count, dst);
}

void add_dequantised(const std::int8_t* codes, const float* scales, std::int64_t count,
                     float* dst) {
  HWY_DYNAMIC_DISPATCH(add_dequantised_run)(codes, scales, count, dst);
}

void add_scaled(const float* first, const float* second, float factor, float* dst,
                std::int64_t count) {
  HWY_DYNAMIC_DISPATCH(add_scaled_run)(first, second, factor, dst, count);
}

}  // namespace belay::comm
#endif  // HWY_ONCE
