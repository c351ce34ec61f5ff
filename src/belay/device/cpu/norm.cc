// Layer and RMS normalisation with the residual addition, forward and backward. A row comes from
// memory once; the passes over it after the first find it in the first-level cache.

#include <cmath>

#include "belay/device/cpu/kernels.h"
#include "belay/device/cpu/pieces.h"
#include "belay/device/finite.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "belay/device/cpu/norm.cc"
// foreach_target.h compiles this file again per instruction set, so the order matters.
// clang-format off
#include "belay/base/simd_targets.h"
#include "hwy/foreach_target.h"
#include "belay/device/cpu/simd_pack.h"
// clang-format on

#ifndef BELAY_DEVICE_CPU_NORM_CC_
#define BELAY_DEVICE_CPU_NORM_CC_
namespace belay {

// Widest row, so that what a piece keeps of it fits a stack.
inline constexpr std::int64_t kRowElements = 16384;

// Columns whose sums over chunks are taken together.
inline constexpr std::int64_t kSumColumns = 1024;

// Room for a row in packs of any width up to 64 elements.
inline std::int64_t packed_width(std::int64_t elements) {
  return (elements + 63) / 64 * 64;
}

}  // namespace belay
#endif

HWY_BEFORE_NAMESPACE();
namespace belay::HWY_NAMESPACE {

HWY_INLINE Pack product(Pack a, Pack b) {
  return {hn::Mul(a.first, b.first), hn::Mul(a.second, b.second)};
}

// dst = (x - mean) rstd weight (+ bias) for one row; `kept`, `weight` and `bias` in pack order.
template <bool kStream, class T>
HWY_INLINE void write_normalised(const float* kept, const float* weight, const float* bias,
                                 float mean, float rstd, std::int64_t hidden, T* dst) {
  const Vec centre = splat(mean);
  const Vec scale = splat(rstd);
  for_packs<kStream>(dst, hidden, [&](auto access, std::int64_t i) HWY_ATTR {
    const Pack x = load_pack(kept + i);
    const Pack w = load_pack(weight + i);
    Pack y{hn::Mul(hn::Sub(x.first, centre), scale), hn::Mul(hn::Sub(x.second, centre), scale)};
    if (bias == nullptr) {
      y = {hn::Mul(y.first, w.first), hn::Mul(y.second, w.second)};
    } else {
      const Pack b = load_pack(bias + i);
      y = {hn::MulAdd(y.first, w.first, b.first), hn::MulAdd(y.second, w.second, b.second)};
    }
    access.store(y, dst + i);
  });
}

// x = src (+ residual) into `kept`; sum = x as stored. Returns the sum of x, or of x^2 for rms.
template <bool kStream, class T>
HWY_INLINE float read_row(NormKind kind, const T* src, const T* residual, T* sum,
                          std::int64_t hidden, float* kept) {
  const auto counted = [&](Pack x, std::int64_t i) HWY_ATTR {
    store_pack<false>(x, kept + i);
    return kind == NormKind::layer ? x : product(x, x);
  };
  if (sum == nullptr) {
    return sum_over_packs<T>(hidden, [&](auto access, std::int64_t i)
                                         HWY_ATTR { return counted(access.load(src + i), i); });
  }
  return sum_over_packs<T, kStream>(hidden, [&](auto access, std::int64_t i) HWY_ATTR {
    const Pack a = access.load(src + i);
    const Pack b = access.load(residual + i);
    // The sum counts as stored, so that the backward pass sees the same values.
    return counted(
        access.store_rounded(Pack{hn::Add(a.first, b.first), hn::Add(a.second, b.second)}, sum + i),
        i);
  });
}

// What every row of a piece shares, in the first-level cache and in pack order.
struct RowScratch {
  alignas(64) float kept[kRowElements];
  alignas(64) float weight[kRowElements];
  alignas(64) float bias[kRowElements];
};

template <bool kStream, bool kStreamSum, class T>
void normalise_rows(const NormForwardArgs& args, Range rows) {
  const std::int64_t hidden = args.src.dim(1);
  const auto width = static_cast<float>(hidden);
  const auto settled = [&](float value) { return kept_inside(value, args.src.dtype, args.inside); };
  RowScratch scratch;
  float* kept = scratch.kept;
  to_pack_order<T>(args.weight.as<float>(), hidden, scratch.weight);
  const float* bias = nullptr;
  if (!args.bias.empty()) {
    to_pack_order<T>(args.bias.as<float>(), hidden, scratch.bias);
    bias = scratch.bias;
  }
  for (std::int64_t row = rows.begin; row < rows.end; ++row) {
    const std::int64_t base = row * hidden;
    const T* src = args.src.as<T>() + base;
    const T* residual = args.residual.empty() ? nullptr : args.residual.as<T>() + base;
    T* sum = args.sum.empty() ? nullptr : args.sum.as<T>() + base;
    const float total = settled(read_row<kStreamSum>(args.kind, src, residual, sum, hidden, kept));
    float mean = 0.0F;
    float squares = total;
    if (args.kind == NormKind::layer) {
      mean = settled(total / width);
      args.mean.as<float>()[row] = mean;
      const Vec centre = splat(mean);
      squares = settled(sum_over_packs<T>(hidden, [&](auto, std::int64_t i) HWY_ATTR {
        const Pack x = load_pack(kept + i);
        const Pack centred{hn::Sub(x.first, centre), hn::Sub(x.second, centre)};
        return product(centred, centred);
      }));
    }
    const float rstd = settled(1.0F / std::sqrt(squares / width + args.eps));
    args.rstd.as<float>()[row] = rstd;
    write_normalised<kStream>(kept, scratch.weight, bias, mean, rstd, hidden,
                              args.dst.as<T>() + base);
  }
  if (kStream || kStreamSum) hwy::FlushStream();
}

// Streaming stores take whole vectors, so packs must begin where lines do.
bool rows_are_aligned(const Tensor& rows) {
  const std::size_t row_bytes = static_cast<std::size_t>(rows.dim(1)) * size_of(rows.dtype);
  return (reinterpret_cast<std::uintptr_t>(rows.data) | row_bytes) % 64 == 0;
}

template <class T>
void norm_forward_as(const NormForwardArgs& args) {
  const bool stream = streams(args.dst) && rows_are_aligned(args.dst);
  // In place, the lines are in the cache already.
  const bool stream_sum = stream && !args.sum.empty() && args.sum.data != args.residual.data &&
                          args.sum.data != args.src.data && rows_are_aligned(args.sum);
  const auto run = stream_sum ? &normalise_rows<true, true, T>
                   : stream   ? &normalise_rows<true, false, T>
                              : &normalise_rows<false, false, T>;
  parallel_ranges(args.src.dim(0), rows_per_piece(args.src.dim(1)),
                  [&](Range rows) { run(args, rows); });
}

void norm_forward(const NormForwardArgs& args) {
  with_storage(args.src.dtype, [&](auto as) { norm_forward_as<decltype(as)>(args); });
}

// What the rows of a chunk share, in pack order, and one row of each operand.
template <class T>
struct BackwardRows {
  const float* weight;
  float* d_weight;
  float* d_bias;  // or null
  const T* x;
  const T* d_dst;
  const T* d_residual;  // or null
  T* d_src;
  const float* mean;  // or null
  const float* rstd;
  std::int64_t hidden;
};

// With xhat = (x - mean) rstd and g = d_dst weight:
//   d_x = rstd (g - mean(g) - xhat mean(g xhat)), without mean(g) for rms.
template <class T>
HWY_INLINE void backward_row(const BackwardRows<T>& at, std::int64_t row) {
  const std::int64_t hidden = at.hidden;
  const T* x = at.x + row * hidden;
  const T* d_dst = at.d_dst + row * hidden;
  const Vec centre = splat(at.mean == nullptr ? 0.0F : at.mean[row]);
  const Vec rstd = splat(at.rstd[row]);
  const auto xhat_of = [&](Pack value) HWY_ATTR {
    return Pack{hn::Mul(hn::Sub(value.first, centre), rstd),
                hn::Mul(hn::Sub(value.second, centre), rstd)};
  };
  Vec g_sum = hn::Zero(kF32);
  Vec gx_sum = g_sum;
  for_packs<false>(x, hidden, [&](auto access, std::int64_t i) HWY_ATTR {
    // Beyond the end of a row d is 0, so what xhat is there does not count.
    const Pack d = access.load(d_dst + i);
    const Pack xhat = xhat_of(access.load(x + i));
    const Pack g = product(d, load_pack(at.weight + i));
    g_sum = hn::Add(g_sum, hn::Add(g.first, g.second));
    gx_sum = hn::MulAdd(g.second, xhat.second, hn::MulAdd(g.first, xhat.first, gx_sum));
    const Pack d_weight = load_pack(at.d_weight + i);
    store_pack<false>(Pack{hn::MulAdd(d.first, xhat.first, d_weight.first),
                           hn::MulAdd(d.second, xhat.second, d_weight.second)},
                      at.d_weight + i);
    if (at.d_bias != nullptr) {
      const Pack d_bias = load_pack(at.d_bias + i);
      store_pack<false>(Pack{hn::Add(d_bias.first, d.first), hn::Add(d_bias.second, d.second)},
                        at.d_bias + i);
    }
  });

  const auto width = static_cast<float>(hidden);
  const Vec mean_g = splat(at.mean == nullptr ? 0.0F : sum_of_lanes(g_sum) / width);
  const Vec mean_gx = splat(sum_of_lanes(gx_sum) / width);
  const T* d_residual = at.d_residual == nullptr ? nullptr : at.d_residual + row * hidden;
  T* d_src = at.d_src + row * hidden;
  for_packs<false>(x, hidden, [&](auto access, std::int64_t i) HWY_ATTR {
    const Pack g = product(access.load(d_dst + i), load_pack(at.weight + i));
    const Pack xhat = xhat_of(access.load(x + i));
    const Vec first = hn::NegMulAdd(xhat.first, mean_gx, hn::Sub(g.first, mean_g));
    const Vec second = hn::NegMulAdd(xhat.second, mean_gx, hn::Sub(g.second, mean_g));
    Pack d{hn::Mul(rstd, first), hn::Mul(rstd, second)};
    if (d_residual != nullptr) {
      const Pack other = access.load(d_residual + i);
      d = {hn::MulAdd(rstd, first, other.first), hn::MulAdd(rstd, second, other.second)};
    }
    access.store(d, d_src + i);
  });
}

template <class T>
void norm_backward_as(const NormBackwardArgs& args, float* partials) {
  const std::int64_t tokens = args.src.dim(0);
  const std::int64_t hidden = args.src.dim(1);
  const std::int64_t stride = packed_width(hidden);
  const std::int64_t grain = rows_per_chunk(tokens);
  const std::int64_t chunks = pieces_of(tokens, grain);
  const bool bias = !args.d_bias.empty();
  const auto rows_of = [&](const Tensor& tensor) {
    return tensor.empty() ? nullptr : tensor.as<T>();
  };
  parallel_for(chunks, [&](std::int64_t chunk) HWY_ATTR {
    alignas(64) float weight[kRowElements];
    to_pack_order<T>(args.weight.as<float>(), hidden, weight);
    float* d_weight = partials + 2 * chunk * stride;
    std::fill_n(d_weight, 2 * stride, 0.0F);
    const BackwardRows<T> at{weight,
                             d_weight,
                             bias ? d_weight + stride : nullptr,
                             args.src.as<T>(),
                             args.d_dst.as<T>(),
                             rows_of(args.d_residual),
                             args.d_src.as<T>(),
                             args.mean.empty() ? nullptr : args.mean.as<float>(),
                             args.rstd.as<float>(),
                             hidden};
    const std::int64_t end = std::min(tokens, (chunk + 1) * grain);
    for (std::int64_t row = chunk * grain; row < end; ++row) backward_row(at, row);
  });
  if (chunks == 0) return;
  // Whole packs of columns, because the sums are in their order.
  parallel_ranges(hidden, kSumColumns, [&](Range columns) HWY_ATTR {
    alignas(64) float sums[kSumColumns];
    const auto add_sums = [&](const float* from, const Tensor& to) HWY_ATTR {
      const std::int64_t width = packed_width(columns.size());
      std::fill_n(sums, kSumColumns, 0.0F);
      add_chunks(from + columns.begin, chunks, 2 * stride, 0, width, sums);
      add_from_pack_order<T>(sums, columns.size(), to.as<float>() + columns.begin);
    };
    add_sums(partials, args.d_weight);
    if (bias) add_sums(partials + stride, args.d_bias);
  });
}

void norm_backward(const NormBackwardArgs& args, float* partials) {
  with_storage(args.src.dtype, [&](auto as) { norm_backward_as<decltype(as)>(args, partials); });
}

}  // namespace belay::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace belay {
namespace {

HWY_EXPORT(norm_forward);
HWY_EXPORT(norm_backward);

const char* unless_narrow(const Tensor& rows) {
  return rows.dim(1) <= kRowElements ? nullptr : "a row is wider than 16384";
}

const char* declines_forward(const NormForwardArgs& args) {
  return first_reason(unless_narrow(args.src), unless_storable(args.src),
                      unless_same(args.src, args.residual), unless_same(args.src, args.sum),
                      unless_same(args.src, args.dst), unless_f32(args.weight),
                      unless_f32(args.bias), unless_f32(args.mean), unless_f32(args.rstd));
}

const char* declines_backward(const NormBackwardArgs& args) {
  return first_reason(unless_narrow(args.src), unless_storable(args.src),
                      unless_same(args.src, args.d_dst), unless_same(args.src, args.d_residual),
                      unless_same(args.src, args.d_src), unless_f32(args.weight),
                      unless_f32(args.mean), unless_f32(args.rstd), unless_f32(args.d_bias));
}

std::size_t backward_workspace(const NormBackwardArgs& args) {
  const std::int64_t tokens = args.src.dim(0);
  const std::int64_t chunks = pieces_of(tokens, rows_per_chunk(tokens));
  return static_cast<std::size_t>(chunks * 2 * packed_width(args.src.dim(1))) * sizeof(float);
}

constexpr Candidate<NormForwardArgs> kForward[] = {
    {"simd", declines_forward, nullptr,
     [](const NormForwardArgs& args, KernelContext& context) {
       HWY_DYNAMIC_DISPATCH(norm_forward)
       (with_settled_sum(args, context, cpu_candidates(OpTag<AddArgs>{}).front().run));
     }},
    kReferenceKernel<NormForwardArgs>};

constexpr Candidate<NormBackwardArgs> kBackward[] = {
    {"simd", declines_backward, backward_workspace,
     [](const NormBackwardArgs& args, KernelContext& context) {
       HWY_DYNAMIC_DISPATCH(norm_backward)
       (args, reinterpret_cast<float*>(context.workspace));
     }},
    kReferenceKernel<NormBackwardArgs>};

}  // namespace

Candidates<NormForwardArgs> cpu_candidates(OpTag<NormForwardArgs>) {
  return kForward;
}
Candidates<NormBackwardArgs> cpu_candidates(OpTag<NormBackwardArgs>) {
  return kBackward;
}

}  // namespace belay
#endif  // HWY_ONCE
