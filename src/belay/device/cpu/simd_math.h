// exp, the logistic function and the normal distribution on vectors of f32, and the activations
// made of them. NaN in gives NaN out. Compiled once per instruction set, like simd.h.

#if defined(BELAY_DEVICE_CPU_SIMD_MATH_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef BELAY_DEVICE_CPU_SIMD_MATH_H_
#undef BELAY_DEVICE_CPU_SIMD_MATH_H_
#else
#define BELAY_DEVICE_CPU_SIMD_MATH_H_
#endif

#include "belay/device/cpu/simd.h"
#include "belay/device/ops/activation.h"

HWY_BEFORE_NAMESPACE();
namespace belay::HWY_NAMESPACE {

// e^x for x in [-87.3, 88] (elsewhere garbage, NaN apart) to about 2 ulp: e^x = 2^n 2^r with
// |r| <= 1/2. The polynomial is a minimax fit of 2^r that is exactly 1 at 0; n is added to its
// exponent.
HWY_INLINE Vec exp_in_range(Vec x) {
  const U32 bits;
  // Adding 1.5 * 2^23 leaves round(x / ln 2) in the low bits of the sum.
  const Vec magic = splat(0x1.8p23F);
  const Vec per_ln2 = splat(0x1.715476p0F);
  const Vec shifted = hn::MulAdd(x, per_ln2, magic);
  const Vec r = hn::MulSub(x, per_ln2, hn::Sub(shifted, magic));
  Vec p = hn::MulAdd(r, splat(0x1.41fb2cp-13F), splat(0x1.5f3f32p-10F));
  p = hn::MulAdd(p, r, splat(0x1.3b2d5p-7F));
  p = hn::MulAdd(p, r, splat(0x1.c6aee6p-5F));
  p = hn::MulAdd(p, r, splat(0x1.ebfbdcp-3F));
  p = hn::MulAdd(p, r, splat(0x1.62e43p-1F));
  p = hn::MulAdd(p, r, splat(1.0F));
  const auto exponent = hn::ShiftLeft<23>(hn::BitCast(bits, shifted));
  return hn::BitCast(kF32, hn::Add(hn::BitCast(bits, p), exponent));
}

// e^x for x <= 0; 0 where the result would be subnormal.
HWY_INLINE Vec exp_nonpositive(Vec x) {
  return hn::IfThenZeroElse(hn::Lt(x, splat(-87.3F)), exp_in_range(x));
}

// Keep NaN. minps and maxps return their second operand then; the portable target is compared and
// selected, because its own drop NaN.
HWY_INLINE Vec at_least(float low, Vec x) {
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
  return hn::IfThenElse(hn::Lt(x, splat(low)), splat(low), x);
#else
  return hn::Max(splat(low), x);
#endif
}
HWY_INLINE Vec at_most(float high, Vec x) {
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
  return hn::IfThenElse(hn::Gt(x, splat(high)), splat(high), x);
#else
  return hn::Min(splat(high), x);
#endif
}

// 1 / x for x in [2^-126, 2^126]. With AVX-512 an estimate of 14 bits and one Newton step are exact
// to about 1 ulp and take half the time of a division.
HWY_INLINE Vec reciprocal(Vec x) {
#if HWY_TARGET == HWY_AVX3
  const Vec estimate = hn::ApproximateReciprocal(x);
  return hn::MulAdd(estimate, hn::NegMulAdd(x, estimate, splat(1.0F)), estimate);
#else
  return hn::Div(splat(1.0F), x);
#endif
}

// s = 1 / (1 + e^-x) and 1 - s, both to full relative precision; x in [-87.3, 87.3].
struct Logistic {
  Vec value;
  Vec complement;
};
HWY_INLINE Logistic logistic(Vec x) {
  const Vec e = exp_in_range(hn::Neg(x));
  const Vec s = reciprocal(hn::Add(splat(1.0F), e));
  return {s, hn::Mul(e, s)};
}

// P(X <= x) and the density of the standard normal distribution, for x in [-13.2, inf). The tail
// is e^(-x^2/2) Q(|x|), Q a minimax fit in (|x| - 4) / (|x| + 4) after Shepherd & Laframboise
// ("Chebyshev approximation of (1+2x) exp(x^2) erfc(x)", Math. Comp. 36, 1981), so that both tails
// keep their relative precision.
struct Normal {
  Vec below;
  Vec density;
};
HWY_INLINE Normal normal(Vec x) {
  const Vec a = at_most(13.2F, hn::Abs(x));
  const Vec square = hn::Mul(a, a);
  const Vec square_error = hn::MulSub(a, a, square);
  Vec e = exp_in_range(hn::Mul(square, splat(-0.5F)));
  e = hn::NegMulAdd(hn::Mul(e, splat(0.5F)), square_error, e);
  const Vec inverse = reciprocal(hn::Add(a, splat(4.0F)));
  const Vec t = hn::NegMulAdd(splat(8.0F), inverse, splat(1.0F));
  Vec q = hn::MulAdd(t, splat(-0x1.0fa41ap-13F), splat(0x1.83323p-13F));
  q = hn::MulAdd(q, t, splat(0x1.9c0da6p-10F));
  q = hn::MulAdd(q, t, splat(-0x1.ccb73cp-9F));
  q = hn::MulAdd(q, t, splat(-0x1.ed4586p-8F));
  q = hn::MulAdd(q, t, splat(0x1.eed4acp-5F));
  q = hn::MulAdd(q, t, splat(-0x1.7dffep-3F));
  q = hn::MulAdd(q, t, splat(0x1.8c6d9cp-2F));
  q = hn::MulAdd(q, t, splat(-0x1.373e3ap-1F));
  q = hn::MulAdd(q, t, splat(0x1.82b4bcp-1F));
  const Vec tail = hn::Mul(hn::Mul(q, inverse), e);
  const Vec below = hn::IfThenElse(hn::Lt(x, hn::Zero(kF32)), tail, hn::Sub(splat(1.0F), tail));
  return {below, hn::Mul(e, splat(0x1.988454p-2F))};  // 1 / sqrt(2 pi)
}

// Below kLowest[kind] the value is replaced by its limit, which is 0 to within 1e-35.
template <Activation kKind>
HWY_INLINE Vec activation_value(Vec x) {
  if constexpr (kKind == Activation::gelu_tanh) {
    // (1 + tanh u) / 2 = logistic(2 u)
    const Vec low = at_least(-9.9F, x);
    const Vec c = at_most(9.9F, low);
    const Vec slope = hn::MulAdd(hn::Mul(c, c), splat(0x1.2444f2p-4F), splat(0x1.988454p0F));
    return hn::Mul(low, logistic(hn::Mul(c, slope)).value);
  } else if constexpr (kKind == Activation::gelu_erf) {
    const Vec low = at_least(-13.0F, x);
    return hn::Mul(low, normal(low).below);
  } else {
    const Vec low = at_least(-87.0F, x);
    return hn::Mul(low, logistic(at_most(87.0F, low)).value);
  }
}

struct ValueAndSlope {
  Vec value;
  Vec slope;
};

template <Activation kKind>
HWY_INLINE ValueAndSlope activation_value_and_slope(Vec x) {
  if constexpr (kKind == Activation::gelu_tanh) {
    const Vec low = at_least(-9.9F, x);
    const Vec c = at_most(9.9F, low);
    const Vec square = hn::Mul(c, c);
    const Vec slope = hn::MulAdd(square, splat(0x1.2444f2p-4F), splat(0x1.988454p0F));
    const Vec inner = hn::MulAdd(square, splat(0x1.b6676cp-3F), splat(0x1.988454p0F));
    const Logistic s = logistic(hn::Mul(c, slope));
    const Vec bend = hn::Mul(hn::Mul(c, inner), hn::Mul(s.value, s.complement));
    return {hn::Mul(low, s.value), hn::Add(s.value, bend)};
  } else if constexpr (kKind == Activation::gelu_erf) {
    const Vec low = at_least(-13.0F, x);
    const Normal n = normal(low);
    return {hn::Mul(low, n.below), hn::MulAdd(at_most(13.0F, low), n.density, n.below)};
  } else {
    const Vec low = at_least(-87.0F, x);
    const Vec c = at_most(87.0F, low);
    const Logistic s = logistic(c);
    return {hn::Mul(low, s.value), hn::MulAdd(hn::Mul(c, s.complement), s.value, s.value)};
  }
}

}  // namespace belay::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
