#include "belay/comm/compression/top_k.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>

#include "belay/base/check.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "belay/comm/compression/top_k.cc"
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

constexpr std::uint32_t kMagnitude = 0x7fffffffU;

// Indices of the values whose magnitude has at least these bits, and their bits. Writes up to a
// vector more than it returns.
std::int64_t collect_run(const float* values, std::int64_t count, std::uint32_t limit,
                         std::uint32_t* indices, std::uint32_t* magnitudes) {
  const simd::U32 d;
  const auto mask = hn::Set(d, kMagnitude);
  const auto least = hn::Set(d, limit);
  const std::int64_t step = simd::lanes();
  std::int64_t found = 0;
  std::int64_t i = 0;
  for (; i + step <= count; i += step) {
    const auto bits = hn::And(hn::BitCast(d, hn::LoadU(simd::kF32, values + i)), mask);
    const auto taken = hn::Not(hn::Lt(bits, least));
    if (hn::AllFalse(d, taken)) continue;
    // Compressed in registers: compressing stores are slow on some processors.
    const auto index = hn::Iota(d, static_cast<std::uint32_t>(i));
    hn::StoreU(hn::Compress(index, taken), d, indices + found);
    hn::StoreU(hn::Compress(bits, taken), d, magnitudes + found);
    found += static_cast<std::int64_t>(hn::CountTrue(d, taken));
  }
  for (; i < count; ++i) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, values + i, sizeof(bits));
    bits &= kMagnitude;
    if (bits < limit) continue;
    indices[found] = static_cast<std::uint32_t>(i);
    magnitudes[found++] = bits;
  }
  return found;
}

}  // namespace belay::comm::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace belay::comm {
namespace {

HWY_EXPORT(collect_run);

constexpr std::int64_t kSample = 4096;
constexpr std::int64_t kVector = 64;  // more elements than any vector has

std::uint32_t magnitude_bits(float value) {
  return std::bit_cast<std::uint32_t>(value) & 0x7fffffffU;
}

}  // namespace

std::int64_t share_of(std::int64_t elements, double ratio) {
  const auto share = static_cast<std::int64_t>(std::llround(static_cast<double>(elements) * ratio));
  return std::clamp<std::int64_t>(share, 1, std::max<std::int64_t>(elements, 1));
}

TopK::TopK(std::int64_t most)
    : indices_(static_cast<std::size_t>(most + kVector)),
      bits_(static_cast<std::size_t>(std::max(most, kSample) + kVector)) {}

std::size_t TopK::bytes(std::int64_t most) {
  return static_cast<std::size_t>(most + std::max(most, kSample) + 2 * kVector) *
         sizeof(std::uint32_t);
}

std::uint32_t TopK::likely_limit(std::span<const float> values, std::int64_t k) {
  const std::int64_t count = std::ssize(values);
  if (count < 4 * kSample) return 0;
  const std::int64_t stride = count / kSample;
  for (std::int64_t i = 0; i < kSample; ++i) {
    bits_[static_cast<std::size_t>(i)] =
        magnitude_bits(values[static_cast<std::size_t>(i * stride)]);
  }
  // As many as the sample should have above the limit, and four standard deviations more.
  const double expected =
      static_cast<double>(kSample) * static_cast<double>(k) / static_cast<double>(count);
  const auto rank = static_cast<std::int64_t>(expected + 4 * std::sqrt(expected) + 4);
  if (rank >= kSample) return 0;
  const auto begin = bits_.begin();
  std::nth_element(begin, begin + rank, begin + kSample, std::greater<>());
  return bits_[static_cast<std::size_t>(rank)];
}

std::span<const std::uint32_t> TopK::select(std::span<const float> values, std::int64_t k) {
  const std::int64_t count = std::ssize(values);
  BELAY_CHECK(k >= 1 && k <= count && count + kVector <= std::ssize(indices_));
  const auto collect = [&](std::uint32_t limit) {
    return HWY_DYNAMIC_DISPATCH(collect_run)(values.data(), count, limit, indices_.data(),
                                             bits_.data());
  };
  std::int64_t found = collect(likely_limit(values, k));
  if (found < k) found = collect(0);
  const auto begin = bits_.begin();
  std::nth_element(begin, begin + (k - 1), begin + found, std::greater<>());
  const std::uint32_t edge = bits_[static_cast<std::size_t>(k - 1)];
  // Those at the edge take the places that those above it leave.
  std::int64_t ties =
      k - std::count_if(begin, begin + k, [edge](std::uint32_t bits) { return bits > edge; });
  std::int64_t chosen = 0;
  for (std::int64_t i = 0; i < found; ++i) {
    const std::uint32_t index = indices_[static_cast<std::size_t>(i)];
    const std::uint32_t bits = magnitude_bits(values[index]);
    if (bits < edge || (bits == edge && ties == 0)) continue;
    if (bits == edge) --ties;
    indices_[static_cast<std::size_t>(chosen++)] = index;
  }
  return {indices_.data(), static_cast<std::size_t>(k)};
}

}  // namespace belay::comm
#endif  // HWY_ONCE
