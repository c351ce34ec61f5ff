// Vectors of f32 from and to IEEE half, with the bits that to_float(F16) and to_f16() give: by
// instruction where the processor has one, else by arithmetic. (Highway's own conversion truncates
// where there is no instruction.) Included once per instruction set.

#if defined(BELAY_DEVICE_CPU_HALF_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef BELAY_DEVICE_CPU_HALF_INL_H_
#undef BELAY_DEVICE_CPU_HALF_INL_H_
#else
#define BELAY_DEVICE_CPU_HALF_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace belay::half::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// As many halves as D has lanes of f32.
template <class D>
using Bits = hn::Rebind<std::uint16_t, D>;

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3

template <class D>
HWY_INLINE hn::Vec<D> widen(D d, hn::Vec<Bits<D>> bits) {
  return hn::PromoteTo(d, hn::BitCast(hn::Rebind<hwy::float16_t, D>(), bits));
}

template <class D>
HWY_INLINE hn::Vec<Bits<D>> narrow(D, hn::Vec<D> value) {
  return hn::BitCast(Bits<D>(), hn::DemoteTo(hn::Rebind<hwy::float16_t, D>(), value));
}

#else

template <class D>
HWY_INLINE hn::Vec<D> widen(D d, hn::Vec<Bits<D>> bits) {
  const hn::RebindToSigned<D> whole;
  const auto word = hn::BitCast(whole, hn::PromoteTo(hn::RebindToUnsigned<D>(), bits));
  const auto sign = hn::ShiftLeft<16>(hn::And(word, hn::Set(whole, 0x8000)));
  const auto magnitude = hn::And(word, hn::Set(whole, 0x7fff));
  const auto shifted = hn::ShiftLeft<13>(magnitude);
  // As the bits of an f32 the half is too small by the difference of the exponent biases; this is
  // exact for subnormals too.
  const auto finite = hn::BitCast(whole, hn::Mul(hn::BitCast(d, shifted), hn::Set(d, 0x1p112F)));
  const auto infinity = hn::Set(whole, 0x7c00);
  const auto quiet = hn::IfThenElseZero(hn::Gt(magnitude, infinity), hn::Set(whole, 0x00400000));
  const auto special = hn::Or(hn::Or(shifted, hn::Set(whole, 0x7f800000)), quiet);
  const auto is_finite = hn::Lt(magnitude, infinity);
  return hn::BitCast(d, hn::Or(sign, hn::IfThenElse(is_finite, finite, special)));
}

template <class D>
HWY_INLINE hn::Vec<Bits<D>> narrow(D d, hn::Vec<D> value) {
  const hn::RebindToSigned<D> whole;
  const hn::RebindToUnsigned<D> word;
  const auto bits = hn::BitCast(whole, value);
  const auto magnitude = hn::And(bits, hn::Set(whole, 0x7fffffff));
  const auto mantissa = hn::ShiftRight<13>(magnitude);
  const auto odd = hn::And(mantissa, hn::Set(whole, 1));
  const auto rebiased = hn::Sub(hn::Add(magnitude, odd), hn::Set(whole, 0x38000000 - 0xfff));
  auto half = hn::ShiftRight<13>(rebiased);
  // Below the normal range the addition of 0.5, whose last bit is worth 2^-24, rounds.
  const auto shifted = hn::Add(hn::BitCast(d, magnitude), hn::Set(d, 0.5F));
  const auto small = hn::Sub(hn::BitCast(whole, shifted), hn::Set(whole, 0x3f000000));
  half = hn::IfThenElse(hn::Lt(magnitude, hn::Set(whole, 0x38800000)), small, half);
  half =
      hn::IfThenElse(hn::Gt(magnitude, hn::Set(whole, 0x477fefff)), hn::Set(whole, 0x7c00), half);
  const auto nan = hn::Or(hn::And(mantissa, hn::Set(whole, 0x3ff)), hn::Set(whole, 0x7e00));
  half = hn::IfThenElse(hn::Gt(magnitude, hn::Set(whole, 0x7f800000)), nan, half);
  const auto sign = hn::ShiftRight<16>(hn::BitCast(word, hn::Xor(bits, magnitude)));
  return hn::TruncateTo(Bits<D>(), hn::Or(sign, hn::BitCast(word, half)));
}

#endif

}  // namespace belay::half::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
