// Two vectors at a time over f32, bf16 or f16 storage. Compiled once per instruction set, like
// simd.h.

#if defined(BELAY_DEVICE_CPU_SIMD_PACK_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef BELAY_DEVICE_CPU_SIMD_PACK_H_
#undef BELAY_DEVICE_CPU_SIMD_PACK_H_
#else
#define BELAY_DEVICE_CPU_SIMD_PACK_H_
#endif

#include <type_traits>

#include "belay/device/cpu/simd.h"

HWY_BEFORE_NAMESPACE();
namespace belay::HWY_NAMESPACE {

// Two vectors at a time, for kernels whose operands are all of one type: the even and the odd
// elements of a full vector of bf16, or two neighbouring vectors of f32 or f16. Taking bf16 apart
// and putting it together that way costs about half of converting vector by vector.
struct Pack {
  Vec first;
  Vec second;
};

// Whether packs of T take elements in turns.
template <class T>
inline constexpr bool kTakesTurns = std::is_same_v<T, Bf16>&& HWY_TARGET != HWY_SCALAR;

HWY_INLINE std::int64_t pack_lanes() {
  return 2 * lanes();
}

#if HWY_TARGET == HWY_SCALAR

HWY_INLINE Pack load_pack(const Bf16* src) {
  return {Whole().load(src), Whole().load(src + 1)};
}
template <bool kStream>
HWY_INLINE void store_pack(Pack value, Bf16* dst) {
  Whole().store(value.first, dst);
  Whole().store(value.second, dst + 1);
}
template <bool kStream>
HWY_INLINE Pack store_pack_rounded(Pack value, Bf16* dst) {
  return {Whole().store_rounded(value.first, dst), Whole().store_rounded(value.second, dst + 1)};
}

#else

HWY_INLINE Pack load_pack(const Bf16* src) {
  const hn::ScalableTag<std::uint16_t> d16;
  const U32 d;
  const auto bits = hn::BitCast(d, hn::LoadU(d16, &src->bits));
  return {hn::BitCast(kF32, hn::ShiftLeft<16>(bits)),
          hn::BitCast(kF32, hn::And(bits, hn::Set(d, 0xffff0000U)))};
}
// Returns the values as stored.
template <bool kStream>
HWY_INLINE Pack store_pack_rounded(Pack value, Bf16* dst) {
  const hn::ScalableTag<std::uint16_t> d16;
  const U32 d;
  const auto first = rounded_bits(value.first);
  const auto second = hn::And(rounded_bits(value.second), hn::Set(d, 0xffff0000U));
  const auto both = hn::BitCast(d16, hn::Or(hn::ShiftRight<16>(first), second));
  if constexpr (kStream) {
    hn::Stream(both, d16, &dst->bits);
  } else {
    hn::StoreU(both, d16, &dst->bits);
  }
  return {value_of_rounded(first), hn::BitCast(kF32, second)};
}
template <bool kStream>
HWY_INLINE void store_pack(Pack value, Bf16* dst) {
  store_pack_rounded<kStream>(value, dst);
}

#endif

HWY_INLINE Pack load_pack(const float* src) {
  return {hn::LoadU(kF32, src), hn::LoadU(kF32, src + lanes())};
}
template <bool kStream>
HWY_INLINE void store_pack(Pack value, float* dst) {
  if constexpr (kStream) {
    hn::Stream(value.first, kF32, dst);
    hn::Stream(value.second, kF32, dst + lanes());
  } else {
    hn::StoreU(value.first, kF32, dst);
    hn::StoreU(value.second, kF32, dst + lanes());
  }
}

template <bool kStream>
HWY_INLINE Pack store_pack_rounded(Pack value, float* dst) {
  store_pack<kStream>(value, dst);
  return value;
}

HWY_INLINE Pack load_pack(const F16* src) {
  return {Whole().load(src), Whole().load(src + lanes())};
}
template <bool kStream>
HWY_INLINE Pack store_pack_rounded(Pack value, F16* dst) {
  using Access = std::conditional_t<kStream, Streaming, Whole>;
  return {Access().store_rounded(value.first, dst),
          Access().store_rounded(value.second, dst + lanes())};
}
template <bool kStream>
HWY_INLINE void store_pack(Pack value, F16* dst) {
  store_pack_rounded<kStream>(value, dst);
}

template <bool kStream>
struct WholePack {
  template <class T>
  HWY_INLINE Pack load(const T* src) const {
    return load_pack(src);
  }
  template <class T>
  HWY_INLINE void store(Pack value, T* dst) const {
    store_pack<kStream>(value, dst);
  }
  // Returns the values as stored.
  template <class T>
  HWY_INLINE Pack store_rounded(Pack value, T* dst) const {
    return store_pack_rounded<kStream>(value, dst);
  }
  // The values of elements that count, 0 for the others.
  template <class T>
  HWY_INLINE Pack keep(Pack value) const {
    return value;
  }
};

// The first `count` elements of a pack; the others load as `fill` and are not stored.
struct PartPack {
  std::size_t count;

  template <class T>
  HWY_INLINE Pack load(const T* src, T fill = {}) const {
    HWY_ALIGN T elements[2 * hn::MaxLanes(kF32)];
    for (std::size_t i = count; i < 2 * hn::MaxLanes(kF32); ++i) elements[i] = fill;
    std::memcpy(elements, src, count * sizeof(T));
    return load_pack(static_cast<const T*>(elements));
  }
  template <class T>
  HWY_INLINE void store(Pack value, T* dst) const {
    HWY_ALIGN T elements[2 * hn::MaxLanes(kF32)];
    store_pack<false>(value, static_cast<T*>(elements));
    std::memcpy(dst, elements, count * sizeof(T));
  }
  template <class T>
  HWY_INLINE Pack store_rounded(Pack value, T* dst) const {
    HWY_ALIGN T elements[2 * hn::MaxLanes(kF32)];
    const Pack stored = store_pack_rounded<false>(value, static_cast<T*>(elements));
    std::memcpy(dst, elements, count * sizeof(T));
    return stored;
  }
  template <class T>
  HWY_INLINE Pack keep(Pack value) const {
    const auto width = static_cast<std::size_t>(lanes());
    const std::size_t first = kTakesTurns<T> ? (count + 1) / 2 : std::min(count, width);
    return {hn::IfThenElseZero(hn::FirstN(kF32, first), value.first),
            hn::IfThenElseZero(hn::FirstN(kF32, count - first), value.second)};
  }
};

// Like for_vectors, pack by pack. With kStream, `dst` is what the body writes at index i.
template <bool kStream, class T, class Body>
HWY_INLINE void for_packs(const T* dst, std::int64_t count, const Body& body) {
  const std::int64_t step = pack_lanes();
  std::int64_t i = 0;
  if constexpr (kStream) {
    const auto line = static_cast<std::uintptr_t>(lanes()) * sizeof(float);
    const auto past = reinterpret_cast<std::uintptr_t>(dst) % line;
    if (past != 0) {
      i = std::min(count, static_cast<std::int64_t>((line - past) / sizeof(T)));
      body(PartPack{static_cast<std::size_t>(i)}, 0);
    }
  }
  for (; i + step <= count; i += step) body(WholePack<kStream>(), i);
  if (i < count) body(PartPack{static_cast<std::size_t>(count - i)}, i);
}

// Sum of term(access, i), a Pack, over the packs of T that cover [0, count). Four accumulators, so
// that additions do not wait for each other. With kStream, the term writes whole lines.
template <class T, bool kStream = false, class Term>
HWY_INLINE float sum_over_packs(std::int64_t count, const Term& term) {
  const std::int64_t step = pack_lanes();
  const WholePack<kStream> whole;
  Vec sum0 = hn::Zero(kF32);
  Vec sum1 = sum0;
  Vec sum2 = sum0;
  Vec sum3 = sum0;
  std::int64_t i = 0;
  for (; i + 2 * step <= count; i += 2 * step) {
    const Pack a = term(whole, i);
    const Pack b = term(whole, i + step);
    sum0 = hn::Add(sum0, a.first);
    sum1 = hn::Add(sum1, a.second);
    sum2 = hn::Add(sum2, b.first);
    sum3 = hn::Add(sum3, b.second);
  }
  for (; i + step <= count; i += step) {
    const Pack a = term(whole, i);
    sum0 = hn::Add(sum0, a.first);
    sum1 = hn::Add(sum1, a.second);
  }
  if (i < count) {
    const PartPack part{static_cast<std::size_t>(count - i)};
    const Pack a = part.template keep<T>(term(part, i));
    sum2 = hn::Add(sum2, a.first);
    sum3 = hn::Add(sum3, a.second);
  }
  return sum_of_lanes(hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3)));
}

// f32 values in the order in which packs of T take elements, so that whole packs of them belong to
// packs of T: `ordered` holds whole packs, filled up with zeros.
template <class T>
void to_pack_order(const float* src, std::int64_t count, float* ordered) {
  const std::int64_t step = pack_lanes();
  for (std::int64_t i = 0; i < count; i += step) {
    HWY_ALIGN float part[2 * hn::MaxLanes(kF32)] = {};
    const float* from = src + i;
    if (i + step > count) {
      std::memcpy(part, from, static_cast<std::size_t>(count - i) * sizeof(float));
      from = part;
    }
    Pack pack;
    if constexpr (kTakesTurns<T>) {
      hn::LoadInterleaved2(kF32, from, pack.first, pack.second);
    } else {
      pack = load_pack(from);
    }
    store_pack<false>(pack, ordered + i);
  }
}

// dst[i] += the element of `ordered` that belongs there.
template <class T>
void add_from_pack_order(const float* ordered, std::int64_t count, float* dst) {
  const std::int64_t step = pack_lanes();
  for (std::int64_t i = 0; i < count; i += step) {
    const Pack pack = load_pack(ordered + i);
    HWY_ALIGN float part[2 * hn::MaxLanes(kF32)];
    if constexpr (kTakesTurns<T>) {
      hn::StoreInterleaved2(pack.first, pack.second, kF32, part);
    } else {
      store_pack<false>(pack, part);
    }
    for_vectors(std::min(step, count - i), [&](auto access, std::int64_t j) HWY_ATTR {
      access.store(hn::Add(access.load(dst + i + j), access.load(part + j)), dst + i + j);
    });
  }
}

}  // namespace belay::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
