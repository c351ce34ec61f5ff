// Vectors of f32 over f32, bf16 or f16 storage: the loads, stores and loops that every fused kernel
// shares. Compiled once per instruction set, hence the toggled guard in place of #pragma once
// (see hwy/foreach_target.h).

#if defined(BELAY_DEVICE_CPU_SIMD_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef BELAY_DEVICE_CPU_SIMD_H_
#undef BELAY_DEVICE_CPU_SIMD_H_
#else
#define BELAY_DEVICE_CPU_SIMD_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "belay/base/dtype.h"
#include "belay/device/cpu/half-inl.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace belay::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using U32 = hn::RebindToUnsigned<F32>;
using HalfU16 = hn::Rebind<std::uint16_t, F32>;
using Vec = hn::Vec<F32>;

inline constexpr F32 kF32;

HWY_INLINE std::int64_t lanes() {
  return static_cast<std::int64_t>(hn::Lanes(kF32));
}

HWY_INLINE Vec splat(float value) {
  return hn::Set(kF32, value);
}

HWY_INLINE Vec widen(hn::Vec<HalfU16> bits) {
  return hn::BitCast(kF32, hn::ShiftLeft<16>(hn::PromoteTo(U32(), bits)));
}

// The bits of f32 values rounded to bf16, to nearest even like to_bf16(), in the upper halves; the
// lower halves are garbage. A NaN made by arithmetic keeps its quiet bit as it is.
HWY_INLINE hn::Vec<U32> rounded_bits(Vec value) {
  const U32 d;
  const auto bits = hn::BitCast(d, value);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d, 1));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(d, 0x7fff)));
  return hn::IfThenElse(hn::RebindMask(d, hn::IsNaN(value)), bits, rounded);
}

HWY_INLINE hn::Vec<HalfU16> upper_halves(hn::Vec<U32> bits) {
  return hn::TruncateTo(HalfU16(), hn::ShiftRight<16>(bits));
}

HWY_INLINE hn::Vec<HalfU16> narrow(Vec value) {
  return upper_halves(rounded_bits(value));
}

HWY_INLINE Vec value_of_rounded(hn::Vec<U32> bits) {
  return hn::BitCast(kF32, hn::And(bits, hn::Set(U32(), 0xffff0000U)));
}

HWY_INLINE Vec widen_half(hn::Vec<HalfU16> bits) {
  return half::HWY_NAMESPACE::widen(kF32, bits);
}
HWY_INLINE hn::Vec<HalfU16> narrow_half(Vec value) {
  return half::HWY_NAMESPACE::narrow(kF32, value);
}

// Whole vectors.
struct Whole {
  HWY_INLINE Vec load(const float* src) const { return hn::LoadU(kF32, src); }
  HWY_INLINE Vec load(const Bf16* src) const { return widen(hn::LoadU(HalfU16(), &src->bits)); }
  HWY_INLINE Vec load(const F16* src) const { return widen_half(hn::LoadU(HalfU16(), &src->bits)); }
  HWY_INLINE void store(Vec value, float* dst) const { hn::StoreU(value, kF32, dst); }
  HWY_INLINE void store(Vec value, Bf16* dst) const {
    hn::StoreU(narrow(value), HalfU16(), &dst->bits);
  }
  HWY_INLINE void store(Vec value, F16* dst) const {
    hn::StoreU(narrow_half(value), HalfU16(), &dst->bits);
  }
  // Returns the value as stored.
  HWY_INLINE Vec store_rounded(Vec value, float* dst) const {
    store(value, dst);
    return value;
  }
  HWY_INLINE Vec store_rounded(Vec value, Bf16* dst) const {
    const auto bits = rounded_bits(value);
    hn::StoreU(upper_halves(bits), HalfU16(), &dst->bits);
    return value_of_rounded(bits);
  }
  HWY_INLINE Vec store_rounded(Vec value, F16* dst) const {
    const auto bits = narrow_half(value);
    hn::StoreU(bits, HalfU16(), &dst->bits);
    return widen_half(bits);
  }
  // The value in the lanes that count, 0 in the others.
  HWY_INLINE Vec keep(Vec value) const { return value; }
  // Writes to scratch memory, which is never streamed.
  HWY_INLINE void keep_in(Vec value, float* scratch) const { hn::StoreU(value, kF32, scratch); }
};

// Whole vectors, written past the caches; the destination is aligned to a vector.
struct Streaming : Whole {
  HWY_INLINE void store(Vec value, float* dst) const { hn::Stream(value, kF32, dst); }
  HWY_INLINE void store(Vec value, Bf16* dst) const {
    hn::Stream(narrow(value), HalfU16(), &dst->bits);
  }
  HWY_INLINE void store(Vec value, F16* dst) const {
    hn::Stream(narrow_half(value), HalfU16(), &dst->bits);
  }
  HWY_INLINE Vec store_rounded(Vec value, float* dst) const {
    store(value, dst);
    return value;
  }
  HWY_INLINE Vec store_rounded(Vec value, Bf16* dst) const {
    const auto bits = rounded_bits(value);
    hn::Stream(upper_halves(bits), HalfU16(), &dst->bits);
    return value_of_rounded(bits);
  }
  HWY_INLINE Vec store_rounded(Vec value, F16* dst) const {
    const auto bits = narrow_half(value);
    hn::Stream(bits, HalfU16(), &dst->bits);
    return widen_half(bits);
  }
};

// The first `count` lanes; the others load as zero and are not stored.
struct Part {
  std::size_t count;

  template <class T>
  HWY_INLINE Vec load(const T* src) const {
    HWY_ALIGN T lanes[hn::MaxLanes(kF32)] = {};
    std::memcpy(lanes, src, count * sizeof(T));
    return Whole().load(lanes);
  }
  template <class T>
  HWY_INLINE void store(Vec value, T* dst) const {
    HWY_ALIGN T lanes[hn::MaxLanes(kF32)];
    Whole().store(value, lanes);
    std::memcpy(dst, lanes, count * sizeof(T));
  }
  template <class T>
  HWY_INLINE Vec store_rounded(Vec value, T* dst) const {
    HWY_ALIGN T lanes[hn::MaxLanes(kF32)];
    const Vec stored = Whole().store_rounded(value, static_cast<T*>(lanes));
    std::memcpy(dst, lanes, count * sizeof(T));
    return stored;
  }
  HWY_INLINE Vec keep(Vec value) const {
    return hn::IfThenElseZero(hn::FirstN(kF32, count), value);
  }
  HWY_INLINE void keep_in(Vec value, float* scratch) const { store(value, scratch); }
};

// Calls body(access, i) for vectors that cover [0, count): whole ones, and one part at the end.
template <class Body>
HWY_INLINE void for_vectors(std::int64_t count, const Body& body) {
  const std::int64_t step = lanes();
  std::int64_t i = 0;
  for (; i + step <= count; i += step) body(Whole(), i);
  if (i < count) body(Part{static_cast<std::size_t>(count - i)}, i);
}

// The same, with stores past the caches; `dst` is what the body writes at index i.
template <class T, class Body>
HWY_INLINE void for_vectors_streaming(const T* dst, std::int64_t count, const Body& body) {
  const std::int64_t step = lanes();
  const auto vector_bytes = static_cast<std::uintptr_t>(step) * sizeof(T);
  const auto past = reinterpret_cast<std::uintptr_t>(dst) % vector_bytes;
  std::int64_t i = 0;
  if (past != 0) {
    i = static_cast<std::int64_t>((vector_bytes - past) / sizeof(T));
    if (i > count) i = count;
    body(Part{static_cast<std::size_t>(i)}, 0);
  }
  for (; i + step <= count; i += step) body(Streaming(), i);
  if (i < count) body(Part{static_cast<std::size_t>(count - i)}, i);
}

// dst = src, rounded if need be.
template <class From, class To>
HWY_NOINLINE void convert_run(const From* src, To* dst, std::int64_t count) {
  for_vectors(count, [&](auto access, std::int64_t i)
                         HWY_ATTR { access.store(access.load(src + i), dst + i); });
}

HWY_INLINE float sum_of_lanes(Vec value) {
  return hn::GetLane(hn::SumOfLanes(kF32, value));
}

// Sum of term(access, i) over the vectors that cover [0, count). Four accumulators, so that
// additions do not wait for each other.
template <class Term>
HWY_INLINE float sum_over(std::int64_t count, const Term& term) {
  const std::int64_t step = lanes();
  Vec sum0 = hn::Zero(kF32);
  Vec sum1 = sum0;
  Vec sum2 = sum0;
  Vec sum3 = sum0;
  std::int64_t i = 0;
  for (; i + 4 * step <= count; i += 4 * step) {
    sum0 = hn::Add(sum0, term(Whole(), i));
    sum1 = hn::Add(sum1, term(Whole(), i + step));
    sum2 = hn::Add(sum2, term(Whole(), i + 2 * step));
    sum3 = hn::Add(sum3, term(Whole(), i + 3 * step));
  }
  for (; i + step <= count; i += step) sum0 = hn::Add(sum0, term(Whole(), i));
  if (i < count) {
    const Part part{static_cast<std::size_t>(count - i)};
    sum1 = hn::Add(sum1, part.keep(term(part, i)));
  }
  return sum_of_lanes(hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3)));
}

// dst[c] += partials[0][c] + partials[1][c] + ... for c in [begin, end), in that order.
HWY_INLINE void add_chunks(const float* partials, std::int64_t chunks, std::int64_t stride,
                           std::int64_t begin, std::int64_t end, float* dst) {
  for_vectors(end - begin, [&](auto access, std::int64_t i) HWY_ATTR {
    const std::int64_t c = begin + i;
    Vec sum = access.load(partials + c);
    for (std::int64_t k = 1; k < chunks; ++k) {
      sum = hn::Add(sum, access.load(partials + k * stride + c));
    }
    access.store(hn::Add(access.load(dst + c), sum), dst + c);
  });
}

}  // namespace belay::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
