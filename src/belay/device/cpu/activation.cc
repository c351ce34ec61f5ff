// Activations of the feed-forward block, plain and gated, forward and backward.

#include "belay/device/cpu/kernels.h"
#include "belay/device/cpu/pieces.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "belay/device/cpu/activation.cc"
// foreach_target.h compiles this file again per instruction set, so the order matters.
// clang-format off
#include "belay/base/simd_targets.h"
#include "hwy/foreach_target.h"
#include "belay/device/cpu/simd_math.h"
#include "belay/device/cpu/simd_pack.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace belay::HWY_NAMESPACE {

// One run of `count` elements; `up` is null for the plain form.
template <Activation kKind, bool kGated, bool kStream, class T>
HWY_NOINLINE void forward_run(const T* gate, const T* up, T* dst, std::int64_t count) {
  for_packs<kStream>(dst, count, [&](auto access, std::int64_t i) HWY_ATTR {
    const Pack x = access.load(gate + i);
    Pack value{activation_value<kKind>(x.first), activation_value<kKind>(x.second)};
    if constexpr (kGated) {
      const Pack factor = access.load(up + i);
      value = {hn::Mul(value.first, factor.first), hn::Mul(value.second, factor.second)};
    }
    access.store(value, dst + i);
  });
}

template <Activation kKind, bool kStream, class T>
HWY_NOINLINE void backward_run(const T* src, const T* d_dst, T* d_src, std::int64_t count) {
  for_packs<kStream>(d_src, count, [&](auto access, std::int64_t i) HWY_ATTR {
    const Pack x = access.load(src + i);
    const Pack d = access.load(d_dst + i);
    const Vec slope0 = activation_value_and_slope<kKind>(x.first).slope;
    const Vec slope1 = activation_value_and_slope<kKind>(x.second).slope;
    access.store(Pack{hn::Mul(d.first, slope0), hn::Mul(d.second, slope1)}, d_src + i);
  });
}

template <Activation kKind, class T>
HWY_NOINLINE void gated_backward_run(const T* gate, const T* up, const T* d_dst, T* d_gate, T* d_up,
                                     std::int64_t count) {
  for_packs<false>(d_gate, count, [&](auto access, std::int64_t i) HWY_ATTR {
    const Pack x = access.load(gate + i);
    const Pack u = access.load(up + i);
    const Pack d = access.load(d_dst + i);
    const ValueAndSlope act0 = activation_value_and_slope<kKind>(x.first);
    const ValueAndSlope act1 = activation_value_and_slope<kKind>(x.second);
    access.store(Pack{hn::Mul(hn::Mul(d.first, u.first), act0.slope),
                      hn::Mul(hn::Mul(d.second, u.second), act1.slope)},
                 d_gate + i);
    access.store(Pack{hn::Mul(d.first, act0.value), hn::Mul(d.second, act1.value)}, d_up + i);
  });
}

// f16 passes through blocks of f32 that stay in the first-level cache: beside the functions the
// conversions cost little, and kernels of its own would be compiled for every instruction set.
constexpr std::int64_t kHalfBlock = 1024;

template <Activation kKind, bool kGated, bool kStream>
void forward_run(const F16* gate, const F16* up, F16* dst, std::int64_t count) {
  alignas(64) float x[kHalfBlock];
  alignas(64) float factors[kGated ? kHalfBlock : 1];
  for (std::int64_t i = 0; i < count; i += kHalfBlock) {
    const std::int64_t part = std::min(kHalfBlock, count - i);
    convert_run(gate + i, static_cast<float*>(x), part);
    if (kGated) convert_run(up + i, static_cast<float*>(factors), part);
    const float* src = x;
    const float* scale = factors;
    forward_run<kKind, kGated, false>(src, scale, static_cast<float*>(x), part);
    convert_run(src, dst + i, part);
  }
}

template <Activation kKind, bool kStream>
void backward_run(const F16* src, const F16* d_dst, F16* d_src, std::int64_t count) {
  alignas(64) float x[kHalfBlock];
  alignas(64) float d[kHalfBlock];
  for (std::int64_t i = 0; i < count; i += kHalfBlock) {
    const std::int64_t part = std::min(kHalfBlock, count - i);
    convert_run(src + i, static_cast<float*>(x), part);
    convert_run(d_dst + i, static_cast<float*>(d), part);
    const float* from = x;
    const float* slope = d;
    backward_run<kKind, false>(from, slope, static_cast<float*>(x), part);
    convert_run(from, d_src + i, part);
  }
}

template <Activation kKind>
void gated_backward_run(const F16* gate, const F16* up, const F16* d_dst, F16* d_gate, F16* d_up,
                        std::int64_t count) {
  alignas(64) float x[kHalfBlock];
  alignas(64) float factors[kHalfBlock];
  alignas(64) float d[kHalfBlock];
  for (std::int64_t i = 0; i < count; i += kHalfBlock) {
    const std::int64_t part = std::min(kHalfBlock, count - i);
    convert_run(gate + i, static_cast<float*>(x), part);
    convert_run(up + i, static_cast<float*>(factors), part);
    convert_run(d_dst + i, static_cast<float*>(d), part);
    const float* from = x;
    const float* scale = factors;
    const float* slope = d;
    gated_backward_run<kKind>(from, scale, slope, static_cast<float*>(x),
                              static_cast<float*>(factors), part);
    convert_run(from, d_gate + i, part);
    convert_run(scale, d_up + i, part);
  }
}

// The plain form knows no rows; the gated one does, because gate and up lie side by side in each.
template <Activation kKind, bool kStream, class T>
void forward(const ActivationForwardArgs& args) {
  const T* src = args.src.as<T>();
  T* dst = args.dst.as<T>();
  const std::int64_t ffn = args.dst.dim(1);
  if (args.gated) {
    parallel_ranges(args.dst.dim(0), rows_per_piece(ffn), [&](Range rows) HWY_ATTR {
      for (std::int64_t t = rows.begin; t < rows.end; ++t) {
        const T* gate = src + 2 * t * ffn;
        forward_run<kKind, true, kStream>(gate, gate + ffn, dst + t * ffn, ffn);
      }
      if (kStream) hwy::FlushStream();
    });
  } else {
    parallel_ranges(args.dst.elements(), kPieceElements, [&](Range run) HWY_ATTR {
      const T* gate = src + run.begin;
      forward_run<kKind, false, kStream>(gate, gate, dst + run.begin, run.size());
      if (kStream) hwy::FlushStream();
    });
  }
}

template <Activation kKind, bool kStream, class T>
void backward(const ActivationBackwardArgs& args) {
  const T* src = args.src.as<T>();
  const T* d_dst = args.d_dst.as<T>();
  T* d_src = args.d_src.as<T>();
  const std::int64_t ffn = args.d_dst.dim(1);
  if (args.gated) {
    parallel_ranges(args.d_dst.dim(0), rows_per_piece(ffn), [&](Range rows) HWY_ATTR {
      for (std::int64_t t = rows.begin; t < rows.end; ++t) {
        const std::int64_t gate = 2 * t * ffn;
        gated_backward_run<kKind>(src + gate, src + gate + ffn, d_dst + t * ffn, d_src + gate,
                                  d_src + gate + ffn, ffn);
      }
    });
  } else {
    parallel_ranges(args.d_dst.elements(), kPieceElements, [&](Range run) HWY_ATTR {
      backward_run<kKind, kStream>(src + run.begin, d_dst + run.begin, d_src + run.begin,
                                   run.size());
      if (kStream) hwy::FlushStream();
    });
  }
}

template <bool kStream, class T>
void forward_of_kind(const ActivationForwardArgs& args) {
  switch (args.kind) {
    case Activation::gelu_tanh:
      return forward<Activation::gelu_tanh, kStream, T>(args);
    case Activation::gelu_erf:
      return forward<Activation::gelu_erf, kStream, T>(args);
    case Activation::silu:
      return forward<Activation::silu, kStream, T>(args);
  }
}

template <bool kStream, class T>
void backward_of_kind(const ActivationBackwardArgs& args) {
  switch (args.kind) {
    case Activation::gelu_tanh:
      return backward<Activation::gelu_tanh, kStream, T>(args);
    case Activation::gelu_erf:
      return backward<Activation::gelu_erf, kStream, T>(args);
    case Activation::silu:
      return backward<Activation::silu, kStream, T>(args);
  }
}

// In place, the lines are in the cache already. Blocks of f16 are not streamed.
template <class T>
void forward_as(const ActivationForwardArgs& args) {
  streams(args.dst) ? forward_of_kind<true, T>(args) : forward_of_kind<false, T>(args);
}
template <class T>
void backward_as(const ActivationBackwardArgs& args) {
  const bool in_place = args.d_src.data == args.src.data;
  streams(args.d_src) && !in_place ? backward_of_kind<true, T>(args)
                                   : backward_of_kind<false, T>(args);
}

void activation_forward(const ActivationForwardArgs& args) {
  if (args.src.dtype == DType::f16) return forward_of_kind<false, F16>(args);
  args.src.dtype == DType::f32 ? forward_as<float>(args) : forward_as<Bf16>(args);
}

void activation_backward(const ActivationBackwardArgs& args) {
  if (args.src.dtype == DType::f16) return backward_of_kind<false, F16>(args);
  args.src.dtype == DType::f32 ? backward_as<float>(args) : backward_as<Bf16>(args);
}

}  // namespace belay::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace belay {
namespace {

HWY_EXPORT(activation_forward);
HWY_EXPORT(activation_backward);

constexpr Candidate<ActivationForwardArgs> kForward[] = {
    {"simd",
     [](const ActivationForwardArgs& args) {
       return first_reason(unless_storable(args.src), unless_same(args.src, args.dst));
     },
     nullptr,
     [](const ActivationForwardArgs& args, KernelContext&) {
       HWY_DYNAMIC_DISPATCH(activation_forward)(args);
     }},
    kReferenceKernel<ActivationForwardArgs>};

constexpr Candidate<ActivationBackwardArgs> kBackward[] = {
    {"simd",
     [](const ActivationBackwardArgs& args) {
       return first_reason(unless_storable(args.src), unless_same(args.src, args.d_dst),
                           unless_same(args.src, args.d_src));
     },
     nullptr,
     [](const ActivationBackwardArgs& args, KernelContext&) {
       HWY_DYNAMIC_DISPATCH(activation_backward)(args);
     }},
    kReferenceKernel<ActivationBackwardArgs>};

}  // namespace

Candidates<ActivationForwardArgs> cpu_candidates(OpTag<ActivationForwardArgs>) {
  return kForward;
}
Candidates<ActivationBackwardArgs> cpu_candidates(OpTag<ActivationBackwardArgs>) {
  return kBackward;
}

}  // namespace belay
#endif  // HWY_ONCE
