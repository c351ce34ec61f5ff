// Products of bf16 pairs: vdpbf16ps multiplies two neighbours along the summed dimension and adds
// both products in f32, at twice the rate of f32. A pair is one std::uint32_t, the earlier element
// in the low half. For Highway's AVX-512 target on processors that also have avx512_bf16; Highway
// 1.0 has no target of its own for them, hence the assembly. Included once per instruction set.

#if defined(BELAY_ATTENTION_PAIRS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef BELAY_ATTENTION_PAIRS_INL_H_
#undef BELAY_ATTENTION_PAIRS_INL_H_
#else
#define BELAY_ATTENTION_PAIRS_INL_H_
#endif

#include "belay/device/cpu/attention/simd-inl.h"

#if HWY_TARGET == HWY_AVX3
HWY_BEFORE_NAMESPACE();
namespace belay::attention::HWY_NAMESPACE {

using PairTag = hn::ScalableTag<std::uint32_t>;
using Pairs = hn::Vec<PairTag>;

HWY_INLINE Floats multiply_add(Pairs left, Pairs right, Floats sum) {
  asm("vdpbf16ps %2, %1, %0" : "+v"(sum.raw) : "v"(left.raw), "v"(right.raw));
  return sum;
}

// Both vectors rounded to bf16: 16 elements of `low`, then 16 of `high`.
HWY_INLINE Pairs round_both(Floats low, Floats high) {
  Pairs both;
  asm("vcvtne2ps2bf16 %2, %1, %0" : "=v"(both.raw) : "v"(high.raw), "v"(low.raw));
  return both;
}

// round_both's result with low[i] and high[i] as neighbours.
HWY_INLINE Pairs interleave(Pairs both) {
  alignas(64) static constexpr std::uint16_t kOrder[32] = {
      0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
      8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  return Pairs{_mm512_permutexvar_epi16(_mm512_load_si512(kOrder), both.raw)};
}

// Copies `count` rows of bf16 into rows of `stride` elements (a multiple of 16), zero beyond `dim`
// and in the rows up to `rows`.
HWY_INLINE void copy_rows(const Bf16* src, std::int64_t src_stride, std::int64_t count,
                          std::int64_t rows, std::int64_t dim, std::uint32_t* dst,
                          std::int64_t stride) {
  const hn::FixedTag<std::uint16_t, 16> tag;
  auto* to = reinterpret_cast<std::uint16_t*>(dst);
  for (std::int64_t row = 0; row < count; ++row, to += stride) {
    const auto* from = reinterpret_cast<const std::uint16_t*>(src + row * src_stride);
    std::int64_t d = 0;
    for (; d + 16 <= dim; d += 16) hn::Store(hn::LoadU(tag, from + d), tag, to + d);
    if (d == stride) continue;
    hn::Store(hn::Zero(tag), tag, to + d);
    for (; d < dim; ++d) to[d] = from[d];
  }
  for (std::int64_t i = 0; i < (rows - count) * stride; i += 16) {
    hn::Store(hn::Zero(tag), tag, to + i);
  }
}

// dst[row / 2][d] = the pair (src[row][d], src[row + 1][d]), 0 for a row behind the last; src as
// copy_rows left it.
HWY_INLINE void pair_rows(const std::uint32_t* src, std::int64_t rows, std::int64_t stride,
                          std::uint32_t* dst) {
  const hn::FixedTag<std::uint16_t, 16> narrow;
  const PairTag wide;
  const auto* from = reinterpret_cast<const std::uint16_t*>(src);
  for (std::int64_t row = 0; row < rows; row += 2) {
    for (std::int64_t d = 0; d < stride; d += 16) {
      const Pairs low = hn::PromoteTo(wide, hn::Load(narrow, from + row * stride + d));
      Pairs high = hn::Zero(wide);
      if (row + 1 < rows) {
        high = hn::PromoteTo(wide, hn::Load(narrow, from + (row + 1) * stride + d));
      }
      hn::Store(hn::Or(low, hn::ShiftLeft<16>(high)), wide, dst + row / 2 * stride + d);
    }
  }
}

}  // namespace belay::attention::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

#endif
