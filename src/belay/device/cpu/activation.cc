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
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace belay::HWY_NAMESPACE {

// One run of `count` elements; `up` is null for the plain form.
template <Activation kKind, class T>
void forward_run(const T* gate, const T* up, T* dst, std::int64_t count, bool stream) {
  const auto body = [&](auto access, std::int64_t i) HWY_ATTR {
    Vec value = activation_value<kKind>(access.load(gate + i));
    if (up != nullptr) value = hn::Mul(value, access.load(up + i));
    access.store(value, dst + i);
  };
  if (stream) {
    for_vectors_streaming(dst, count, body);
  } else {
    for_vectors(count, body);
  }
}

template <Activation kKind, class T>
void backward_run(const T* src, const T* d_dst, T* d_src, std::int64_t count, bool stream) {
  const auto body = [&](auto access, std::int64_t i) HWY_ATTR {
    const Vec slope = activation_value_and_slope<kKind>(access.load(src + i)).slope;
    access.store(hn::Mul(access.load(d_dst + i), slope), d_src + i);
  };
  if (stream) {
    for_vectors_streaming(d_src, count, body);
  } else {
    for_vectors(count, body);
  }
}

template <Activation kKind, class T>
void gated_backward_run(const T* gate, const T* up, const T* d_dst, T* d_gate, T* d_up,
                        std::int64_t count) {
  for_vectors(count, [&](auto access, std::int64_t i) HWY_ATTR {
    const auto [value, slope] = activation_value_and_slope<kKind>(access.load(gate + i));
    const Vec d = access.load(d_dst + i);
    const Vec d_times_up = hn::Mul(d, access.load(up + i));
    access.store(hn::Mul(d_times_up, slope), d_gate + i);
    access.store(hn::Mul(d, value), d_up + i);
  });
}

// The plain form knows no rows; the gated one does, because gate and up lie side by side in each.
template <Activation kKind, class T>
void forward(const ActivationForwardArgs& args) {
  const T* src = args.src.as<T>();
  T* dst = args.dst.as<T>();
  const std::int64_t ffn = args.dst.dim(1);
  const bool stream = streams(args.dst);
  if (args.gated) {
    parallel_ranges(args.dst.dim(0), rows_per_piece(ffn), [&](Range rows) HWY_ATTR {
      for (std::int64_t t = rows.begin; t < rows.end; ++t) {
        const T* gate = src + 2 * t * ffn;
        forward_run<kKind>(gate, gate + ffn, dst + t * ffn, ffn, stream);
      }
      if (stream) hwy::FlushStream();
    });
  } else {
    parallel_ranges(args.dst.elements(), kPieceElements, [&](Range run) HWY_ATTR {
      const T* none = nullptr;
      forward_run<kKind>(src + run.begin, none, dst + run.begin, run.size(), stream);
      if (stream) hwy::FlushStream();
    });
  }
}

template <Activation kKind, class T>
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
    const bool stream = streams(args.d_src) && args.d_src.data != args.src.data;
    parallel_ranges(args.d_dst.elements(), kPieceElements, [&](Range run) HWY_ATTR {
      backward_run<kKind>(src + run.begin, d_dst + run.begin, d_src + run.begin, run.size(),
                          stream);
      if (stream) hwy::FlushStream();
    });
  }
}

template <class T>
void forward_of_kind(const ActivationForwardArgs& args) {
  switch (args.kind) {
    case Activation::gelu_tanh:
      return forward<Activation::gelu_tanh, T>(args);
    case Activation::gelu_erf:
      return forward<Activation::gelu_erf, T>(args);
    case Activation::silu:
      return forward<Activation::silu, T>(args);
  }
}

template <class T>
void backward_of_kind(const ActivationBackwardArgs& args) {
  switch (args.kind) {
    case Activation::gelu_tanh:
      return backward<Activation::gelu_tanh, T>(args);
    case Activation::gelu_erf:
      return backward<Activation::gelu_erf, T>(args);
    case Activation::silu:
      return backward<Activation::silu, T>(args);
  }
}

void activation_forward(const ActivationForwardArgs& args) {
  args.src.dtype == DType::f32 ? forward_of_kind<float>(args) : forward_of_kind<Bf16>(args);
}

void activation_backward(const ActivationBackwardArgs& args) {
  args.src.dtype == DType::f32 ? backward_of_kind<float>(args) : backward_of_kind<Bf16>(args);
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
       return first_reason(unless_f32_or_bf16(args.src), unless_same(args.src, args.dst));
     },
     nullptr,
     [](const ActivationForwardArgs& args, KernelContext&) {
       HWY_DYNAMIC_DISPATCH(activation_forward)(args);
     }},
    kReferenceKernel<ActivationForwardArgs>};

constexpr Candidate<ActivationBackwardArgs> kBackward[] = {
    {"simd",
     [](const ActivationBackwardArgs& args) {
       return first_reason(unless_f32_or_bf16(args.src), unless_same(args.src, args.d_dst),
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
