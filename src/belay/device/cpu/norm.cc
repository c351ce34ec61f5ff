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
#include "belay/device/cpu/simd.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace belay::HWY_NAMESPACE {

// Widest row whose values are kept in f32 between the passes; wider ones are read again.
constexpr std::int64_t kRowElements = 4096;

// Runs body over a row that is written at dst.
template <class T, class Body>
HWY_INLINE void over_row(bool stream, const T* dst, std::int64_t count, const Body& body) {
  if (stream) {
    for_vectors_streaming(dst, count, body);
  } else {
    for_vectors(count, body);
  }
}

struct RowStatistics {
  float mean;
  float rstd;
};

// Sum of a row, for its mean.
template <class T>
HWY_INLINE float total_of(const NormForwardArgs& args, const T* x) {
  if (args.kind == NormKind::rms) return 0.0F;
  return sum_over(args.src.dim(1),
                  [&](auto access, std::int64_t i) HWY_ATTR { return access.load(x + i); });
}

// From the row's total and a second pass over its values.
template <class T>
HWY_INLINE RowStatistics statistics_of(const NormForwardArgs& args, const T* x, float total) {
  const std::int64_t hidden = args.src.dim(1);
  const auto width = static_cast<float>(hidden);
  const auto kept = [&](float value) { return kept_inside(value, args.src.dtype, args.inside); };
  const float mean = args.kind == NormKind::layer ? kept(kept(total) / width) : 0.0F;
  const Vec centre = splat(mean);
  const float squares = sum_over(hidden, [&](auto access, std::int64_t i) HWY_ATTR {
    const Vec centred = hn::Sub(access.load(x + i), centre);
    return hn::Mul(centred, centred);
  });
  return {mean, kept(1.0F / std::sqrt(kept(squares) / width + args.eps))};
}

// dst = (x - mean) rstd weight (+ bias), and the statistics as the backward pass wants them.
template <class From, class T>
HWY_INLINE void write_normalised(const NormForwardArgs& args, std::int64_t row, const From* x,
                                 RowStatistics statistics, bool stream) {
  const std::int64_t hidden = args.src.dim(1);
  if (!args.mean.empty()) args.mean.as<float>()[row] = statistics.mean;
  args.rstd.as<float>()[row] = statistics.rstd;
  const float* weight = args.weight.as<float>();
  const float* bias = args.bias.as<float>();
  T* dst = args.dst.as<T>() + row * hidden;
  const Vec centre = splat(statistics.mean);
  const Vec scale = splat(statistics.rstd);
  over_row(stream, dst, hidden, [&](auto access, std::int64_t i) HWY_ATTR {
    const Vec xhat = hn::Mul(hn::Sub(access.load(x + i), centre), scale);
    const Vec w = access.load(weight + i);
    access.store(bias == nullptr ? hn::Mul(xhat, w) : hn::MulAdd(xhat, w, access.load(bias + i)),
                 dst + i);
  });
}

template <class T>
void normalise_row(const NormForwardArgs& args, std::int64_t row, bool stream, float* kept) {
  const std::int64_t hidden = args.src.dim(1);
  const T* src = args.src.as<T>() + row * hidden;
  if (args.sum.empty()) {
    const float total = total_of(args, src);
    write_normalised<T, T>(args, row, src, statistics_of(args, src, total), stream);
    return;
  }
  const T* residual = args.residual.as<T>() + row * hidden;
  T* sum = args.sum.as<T>() + row * hidden;
  if (kept == nullptr) {
    for_vectors(hidden, [&](auto access, std::int64_t i) HWY_ATTR {
      access.store(hn::Add(access.load(src + i), access.load(residual + i)), sum + i);
    });
    const T* x = sum;
    write_normalised<T, T>(args, row, x, statistics_of(args, x, total_of(args, x)), stream);
    return;
  }
  const bool in_place = sum == residual || sum == src;  // those lines are in the cache already
  over_row(stream && !in_place, sum, hidden, [&](auto access, std::int64_t i) HWY_ATTR {
    // The sum counts as stored, so that the backward pass sees the same values.
    const Vec x =
        access.store_rounded(hn::Add(access.load(src + i), access.load(residual + i)), sum + i);
    access.keep_in(x, kept + i);
  });
  const float total = total_of<float>(args, kept);
  const RowStatistics statistics = statistics_of(args, static_cast<const float*>(kept), total);
  write_normalised<float, T>(args, row, kept, statistics, stream);
}

void norm_forward(const NormForwardArgs& args) {
  const std::int64_t hidden = args.src.dim(1);
  const bool stream = streams(args.dst);
  parallel_ranges(args.src.dim(0), rows_per_piece(hidden), [&](Range rows) HWY_ATTR {
    alignas(64) float row_values[kRowElements];
    float* kept = hidden <= kRowElements ? row_values : nullptr;
    for (std::int64_t row = rows.begin; row < rows.end; ++row) {
      with_storage(args.src.dtype,
                   [&](auto as) HWY_ATTR { normalise_row<decltype(as)>(args, row, stream, kept); });
    }
    if (stream) hwy::FlushStream();
  });
}

// With xhat = (x - mean) rstd and g = d_dst weight:
//   d_x = rstd (g - mean(g) - xhat mean(g xhat)), without mean(g) for rms.
// d_weight and d_bias are the sums over this chunk's rows.
template <class T>
void norm_backward_row(const NormBackwardArgs& args, std::int64_t row, float* d_weight,
                       float* d_bias) {
  const std::int64_t hidden = args.src.dim(1);
  const std::int64_t base = row * hidden;
  const T* x = args.src.as<T>() + base;
  const T* d_dst = args.d_dst.as<T>() + base;
  const float* weight = args.weight.as<float>();
  const float row_rstd = args.rstd.as<float>()[row];
  const Vec centre = splat(args.mean.empty() ? 0.0F : args.mean.as<float>()[row]);
  const Vec rstd = splat(row_rstd);

  const auto xhat_at = [&](auto access, std::int64_t i)
                           HWY_ATTR { return hn::Mul(hn::Sub(access.load(x + i), centre), rstd); };
  Vec g_sum = hn::Zero(kF32);
  Vec gx_sum = g_sum;
  for_vectors(hidden, [&](auto access, std::int64_t i) HWY_ATTR {
    const Vec d = access.load(d_dst + i);
    const Vec xhat = xhat_at(access, i);
    const Vec g = hn::Mul(d, access.load(weight + i));
    g_sum = hn::Add(g_sum, g);
    gx_sum = hn::MulAdd(g, xhat, gx_sum);
    access.store(hn::MulAdd(d, xhat, access.load(d_weight + i)), d_weight + i);
    if (d_bias != nullptr) access.store(hn::Add(access.load(d_bias + i), d), d_bias + i);
  });
  const auto width = static_cast<float>(hidden);
  const bool centred = args.kind == NormKind::layer;
  const Vec mean_g = splat(centred ? sum_of_lanes(g_sum) / width : 0.0F);
  const Vec mean_gx = splat(sum_of_lanes(gx_sum) / width);

  const T* d_residual = args.d_residual.empty() ? nullptr : args.d_residual.as<T>() + base;
  T* d_src = args.d_src.as<T>() + base;
  for_vectors(hidden, [&](auto access, std::int64_t i) HWY_ATTR {
    const Vec g = hn::Mul(access.load(d_dst + i), access.load(weight + i));
    const Vec inner = hn::NegMulAdd(xhat_at(access, i), mean_gx, hn::Sub(g, mean_g));
    access.store(d_residual == nullptr ? hn::Mul(rstd, inner)
                                       : hn::MulAdd(rstd, inner, access.load(d_residual + i)),
                 d_src + i);
  });
}

void norm_backward(const NormBackwardArgs& args, float* partials) {
  const std::int64_t tokens = args.src.dim(0);
  const std::int64_t hidden = args.src.dim(1);
  const std::int64_t grain = rows_per_chunk(tokens);
  const std::int64_t chunks = pieces_of(tokens, grain);
  const bool bias = !args.d_bias.empty();
  parallel_for(chunks, [&](std::int64_t chunk) HWY_ATTR {
    float* d_weight = partials + 2 * chunk * hidden;
    float* d_bias = bias ? d_weight + hidden : nullptr;
    std::fill_n(d_weight, 2 * hidden, 0.0F);
    const std::int64_t end = std::min(tokens, (chunk + 1) * grain);
    for (std::int64_t row = chunk * grain; row < end; ++row) {
      with_storage(args.src.dtype, [&](auto as) HWY_ATTR {
        norm_backward_row<decltype(as)>(args, row, d_weight, d_bias);
      });
    }
  });
  if (chunks == 0) return;
  parallel_ranges(hidden, 1024, [&](Range columns) HWY_ATTR {
    add_chunks(partials, chunks, 2 * hidden, columns.begin, columns.end, args.d_weight.as<float>());
    if (bias) {
      add_chunks(partials + hidden, chunks, 2 * hidden, columns.begin, columns.end,
                 args.d_bias.as<float>());
    }
  });
}

}  // namespace belay::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace belay {
namespace {

HWY_EXPORT(norm_forward);
HWY_EXPORT(norm_backward);

const char* declines_forward(const NormForwardArgs& args) {
  return first_reason(unless_storable(args.src), unless_same(args.src, args.residual),
                      unless_same(args.src, args.sum), unless_same(args.src, args.dst),
                      unless_f32(args.weight), unless_f32(args.bias), unless_f32(args.mean),
                      unless_f32(args.rstd));
}

const char* declines_backward(const NormBackwardArgs& args) {
  return first_reason(unless_storable(args.src), unless_same(args.src, args.d_dst),
                      unless_same(args.src, args.d_residual), unless_same(args.src, args.d_src),
                      unless_f32(args.weight), unless_f32(args.mean), unless_f32(args.rstd),
                      unless_f32(args.d_bias));
}

std::size_t backward_workspace(const NormBackwardArgs& args) {
  const std::int64_t tokens = args.src.dim(0);
  const std::int64_t chunks = pieces_of(tokens, rows_per_chunk(tokens));
  return static_cast<std::size_t>(chunks * 2 * args.src.dim(1)) * sizeof(float);
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
