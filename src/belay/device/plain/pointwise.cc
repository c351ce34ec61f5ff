// Pointwise plain passes.

#include "belay/device/plain/passes.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "belay/device/plain/pointwise.cc"
// foreach_target.h compiles this file again per instruction set, so the order matters.
// clang-format off
#include "belay/base/simd_targets.h"
#include "hwy/foreach_target.h"
#include "belay/device/plain/runs-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace belay::plain::HWY_NAMESPACE {

template <class T>
void apply_as(Function function, const Rows& x, const Rows& dst) {
  switch (function) {
    case Function::sigmoid:
      return map<T, T>(x, dst, [](Vec v) HWY_ATTR {
        return logistic(at_most(87.0F, at_least(-87.0F, v))).value;
      });
    case Function::normal_below:
      return map<T, T>(x, dst, [](Vec v) HWY_ATTR { return normal(at_least(-13.0F, v)).below; });
    case Function::normal_density:
      return map<T, T>(x, dst, [](Vec v) HWY_ATTR { return normal(v).density; });
  }
}

void apply(Function function, const Rows& x, const Rows& dst) {
  with_storage(dst.dtype, [&](auto as) HWY_ATTR { apply_as<decltype(as)>(function, x, dst); });
}

void affine(const Rows& x, float alpha, float beta, const Rows& dst) {
  const Vec slope = splat(alpha);
  const Vec offset = splat(beta);
  with_storage(x.dtype, [&](auto from) HWY_ATTR {
    with_storage(dst.dtype, [&](auto to) HWY_ATTR {
      map<decltype(from), decltype(to)>(
          x, dst, [&](Vec v) HWY_ATTR { return hn::MulAdd(v, slope, offset); });
    });
  });
}

template <class T>
void combine_as(Binary binary, const Rows& a, const Rows& b, const Rows& dst) {
  switch (binary) {
    case Binary::add:
      return map<T>(a, b, dst, [](Vec x, Vec y) HWY_ATTR { return hn::Add(x, y); });
    case Binary::subtract:
      return map<T>(a, b, dst, [](Vec x, Vec y) HWY_ATTR { return hn::Sub(x, y); });
    case Binary::multiply:
      return map<T>(a, b, dst, [](Vec x, Vec y) HWY_ATTR { return hn::Mul(x, y); });
    case Binary::sigmoid_gradient:
      return map<T>(a, b, dst,
                    [](Vec x, Vec y) HWY_ATTR { return hn::Mul(x, hn::NegMulAdd(y, y, y)); });
  }
}

void combine(Binary binary, const Rows& a, const Rows& b, const Rows& dst) {
  with_storage(dst.dtype, [&](auto as) HWY_ATTR { combine_as<decltype(as)>(binary, a, b, dst); });
}

// dst = keep dst + term(access, i), f32
template <class Term>
HWY_INLINE void blend_with(float keep, const Tensor& dst, const Term& term) {
  const Vec kept = splat(keep);
  float* to = dst.as<float>();
  parallel_ranges(dst.elements(), kPieceElements, [&](Range run) HWY_ATTR {
    for_vectors(run.size(), [&](auto access, std::int64_t i) HWY_ATTR {
      const std::int64_t at = run.begin + i;
      access.store(hn::MulAdd(kept, access.load(to + at), term(access, at)), to + at);
    });
  });
}

void blend(float keep, const Tensor& dst, float gain, const Tensor& x) {
  const float* from = x.as<float>();
  const Vec factor = splat(gain);
  blend_with(keep, dst, [&](auto access, std::int64_t i) HWY_ATTR {
    return hn::Mul(factor, access.load(from + i));
  });
}

void blend_square(float keep, const Tensor& dst, float gain, const Tensor& x) {
  const float* from = x.as<float>();
  const Vec factor = splat(gain);
  blend_with(keep, dst, [&](auto access, std::int64_t i) HWY_ATTR {
    const Vec value = access.load(from + i);
    return hn::Mul(hn::Mul(factor, value), value);
  });
}

void blend_quotient(float keep, const Tensor& dst, float gain, const Tensor& a, const Tensor& b) {
  const float* above = a.as<float>();
  const float* below = b.as<float>();
  const Vec factor = splat(gain);
  blend_with(keep, dst, [&](auto access, std::int64_t i) HWY_ATTR {
    return hn::Mul(factor, hn::Div(access.load(above + i), access.load(below + i)));
  });
}

void root(const Tensor& x, float scale, float eps, const Tensor& dst) {
  const Vec factor = splat(scale);
  const Vec offset = splat(eps);
  map<float, float>(all(x), all(dst),
                    [&](Vec v) HWY_ATTR { return hn::MulAdd(hn::Sqrt(v), factor, offset); });
}

}  // namespace belay::plain::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace belay::plain {
namespace {

HWY_EXPORT(apply);
HWY_EXPORT(affine);
HWY_EXPORT(combine);
HWY_EXPORT(blend);
HWY_EXPORT(blend_square);
HWY_EXPORT(blend_quotient);
HWY_EXPORT(root);

}  // namespace

Rows all(const Tensor& tensor) {
  const std::int64_t width = tensor.dim(tensor.shape.rank() - 1);
  return {tensor.data, tensor.dtype, tensor.elements() / width, width, width};
}

void apply(Function function, const Rows& x, const Rows& dst) {
  HWY_DYNAMIC_DISPATCH(apply)(function, x, dst);
}
void affine(const Rows& x, float alpha, float beta, const Rows& dst) {
  HWY_DYNAMIC_DISPATCH(affine)(x, alpha, beta, dst);
}
void combine(Binary binary, const Rows& a, const Rows& b, const Rows& dst) {
  HWY_DYNAMIC_DISPATCH(combine)(binary, a, b, dst);
}
void blend(float keep, const Tensor& dst, float gain, const Tensor& x) {
  HWY_DYNAMIC_DISPATCH(blend)(keep, dst, gain, x);
}
void blend_square(float keep, const Tensor& dst, float gain, const Tensor& x) {
  HWY_DYNAMIC_DISPATCH(blend_square)(keep, dst, gain, x);
}
void blend_quotient(float keep, const Tensor& dst, float gain, const Tensor& a, const Tensor& b) {
  HWY_DYNAMIC_DISPATCH(blend_quotient)(keep, dst, gain, a, b);
}
void root(const Tensor& x, float scale, float eps, const Tensor& dst) {
  HWY_DYNAMIC_DISPATCH(root)(x, scale, eps, dst);
}

}  // namespace belay::plain
#endif  // HWY_ONCE
