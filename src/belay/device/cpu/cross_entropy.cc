// Softmax cross-entropy and its gradient. Two passes over a row: the first finds the log-sum-exp
// block by block with a running maximum (Milakov & Gimelshein, arXiv:1805.02867), the second writes
// the gradient. A row of usual width is still in the second-level cache for the second pass. Where
// the gradient is stored in f32 the first pass leaves the exponentials there, each block relative
// to its own maximum, and the second only scales them; bf16 would lose precision that way.

#include <cmath>
#include <limits>

#include "belay/device/cpu/kernels.h"
#include "belay/device/cpu/pieces.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "belay/device/cpu/cross_entropy.cc"
// foreach_target.h compiles this file again per instruction set, so the order matters.
// clang-format off
#include "belay/base/simd_targets.h"
#include "hwy/foreach_target.h"
#include "belay/device/cpu/simd_math.h"
#include "belay/device/cpu/simd_pack.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace belay::HWY_NAMESPACE {

// A block stays in the first-level cache between its maximum and its exponentials.
constexpr std::int64_t kBlock = 2048;

struct SoftmaxStats {
  float largest;  // of the finite logits
  double sum;     // of exp(logit - largest)
};

template <class T>
HWY_INLINE float largest_of(const T* x, std::int64_t count) {
  const std::int64_t step = lanes();
  const Vec lowest = splat(std::numeric_limits<float>::lowest());
  Vec max0 = lowest;
  Vec max1 = lowest;
  const Whole whole;
  std::int64_t i = 0;
  for (; i + 2 * step <= count; i += 2 * step) {
    max0 = hn::Max(whole.load(x + i), max0);
    max1 = hn::Max(whole.load(x + i + step), max1);
  }
  float largest = hn::GetLane(hn::MaxOfLanes(kF32, hn::Max(max0, max1)));
  for (; i < count; i += step) {
    const Part part{static_cast<std::size_t>(std::min(step, count - i))};
    const Vec value = part.load(x + i);
    const auto counted = hn::FirstN(kF32, part.count);
    const Vec kept = hn::IfThenElse(counted, value, lowest);
    largest = std::max(largest, hn::GetLane(hn::MaxOfLanes(kF32, hn::Max(kept, lowest))));
  }
  return largest;
}

// Adds a block to the statistics; e_at(access, i) gives exp(x[i] - shift) and may keep it.
template <class T, class ExpAt>
HWY_INLINE void add_block(const T* block, std::int64_t count, SoftmaxStats& stats,
                          const ExpAt& e_at) {
  const float largest = largest_of(block, count);
  if (largest > stats.largest) {
    const double fall = static_cast<double>(stats.largest) - static_cast<double>(largest);
    stats = {largest, stats.sum * std::exp(fall)};
  }
  const Vec shift = splat(stats.largest);
  // NaN anywhere survives into the sum.
  stats.sum += static_cast<double>(sum_over(count, [&](auto access, std::int64_t i) HWY_ATTR {
    return e_at(access, i, exp_nonpositive(hn::Sub(access.load(block + i), shift)));
  }));
}

template <class T>
SoftmaxStats softmax_stats(const T* x, std::int64_t vocab) {
  SoftmaxStats stats{std::numeric_limits<float>::lowest(), 0};
  for (std::int64_t begin = 0; begin < vocab; begin += kBlock) {
    add_block(x + begin, std::min(kBlock, vocab - begin), stats,
              [](auto, std::int64_t, Vec e) HWY_ATTR { return e; });
  }
  return stats;
}

// The same; leaves exp(x - shifts[block]) in e. There is room for kMaxBlocks shifts.
constexpr std::int64_t kMaxBlocks = 256;
template <class T>
SoftmaxStats softmax_stats_keeping(const T* x, std::int64_t vocab, float* e, float* shifts) {
  SoftmaxStats stats{std::numeric_limits<float>::lowest(), 0};
  for (std::int64_t begin = 0; begin < vocab; begin += kBlock) {
    float* kept = e + begin;
    add_block(x + begin, std::min(kBlock, vocab - begin), stats,
              [&](auto access, std::int64_t i, Vec value) HWY_ATTR {
                access.store(value, kept + i);
                return value;
              });
    shifts[begin / kBlock] = stats.largest;
  }
  return stats;
}

// e *= factor * exp(shift of the block - largest)
HWY_INLINE void scale_blocks(float* e, std::int64_t vocab, const float* shifts, float largest,
                             double factor) {
  for (std::int64_t begin = 0; begin < vocab; begin += kBlock) {
    const double fall = static_cast<double>(shifts[begin / kBlock]) - static_cast<double>(largest);
    const Vec block_factor = splat(static_cast<float>(factor * std::exp(fall)));
    float* block = e + begin;
    for_vectors(std::min(kBlock, vocab - begin), [&](auto access, std::int64_t i) HWY_ATTR {
      access.store(hn::Mul(access.load(block + i), block_factor), block + i);
    });
  }
}

// d_x = factor * exp(x - largest)
template <class From, class To>
HWY_INLINE void write_softmax(const From* x, To* d_x, std::int64_t vocab, float largest,
                              double factor) {
  const Vec shift = splat(largest);
  const Vec scale = splat(static_cast<float>(factor));
  if constexpr (std::is_same_v<From, To>) {
    for_packs<false>(d_x, vocab, [&](auto access, std::int64_t i) HWY_ATTR {
      const Pack logits = access.load(x + i);
      access.store(Pack{hn::Mul(exp_nonpositive(hn::Sub(logits.first, shift)), scale),
                        hn::Mul(exp_nonpositive(hn::Sub(logits.second, shift)), scale)},
                   d_x + i);
    });
  } else {
    for_vectors(vocab, [&](auto access, std::int64_t i) HWY_ATTR {
      const Vec e = exp_nonpositive(hn::Sub(access.load(x + i), shift));
      access.store(hn::Mul(e, scale), d_x + i);
    });
  }
}

template <class From, class To>
void cross_entropy_row(const CrossEntropyArgs& args, std::int64_t row) {
  const std::int64_t vocab = args.logits.dim(1);
  const From* x = args.logits.as<From>() + row * vocab;
  const std::int32_t target = args.targets.as<std::int32_t>()[row];
  float& nll = args.nll.as<float>()[row];
  To* d_x = args.d_logits.empty() ? nullptr : args.d_logits.as<To>() + row * vocab;
  if (target < 0) {
    nll = 0.0F;
    if (d_x != nullptr) std::memset(d_x, 0, static_cast<std::size_t>(vocab) * sizeof(To));
    return;
  }
  float target_logit;  // read now: the gradient may overwrite it
  if constexpr (std::is_same_v<From, float>) {
    target_logit = x[target];
  } else {
    target_logit = to_float(x[target]);
  }
  const bool keep = std::is_same_v<To, float> && d_x != nullptr && vocab <= kMaxBlocks * kBlock;
  float shifts[kMaxBlocks];
  SoftmaxStats stats;
  if constexpr (std::is_same_v<To, float>) {
    stats = keep ? softmax_stats_keeping(x, vocab, d_x, shifts) : softmax_stats(x, vocab);
  } else {
    stats = softmax_stats(x, vocab);
  }
  const double log_sum = std::log(stats.sum);
  const double below = static_cast<double>(target_logit) - static_cast<double>(stats.largest);
  nll = static_cast<float>(log_sum - below);
  if (d_x == nullptr) return;

  const double lse = static_cast<double>(stats.largest) + log_sum;
  const double slope = 1.0 + 2.0 * static_cast<double>(args.z_loss) * lse;
  const double scale = static_cast<double>(args.scale);
  const double factor = scale * slope / stats.sum;
  if constexpr (std::is_same_v<To, float>) {
    if (keep) scale_blocks(d_x, vocab, shifts, stats.largest, factor);
  }
  if (!keep) write_softmax(x, d_x, vocab, stats.largest, factor);
  const double p = std::exp(below - log_sum);
  const auto d_target = static_cast<float>(scale * (slope * p - 1.0));
  if constexpr (std::is_same_v<To, float>) {
    d_x[target] = d_target;
  } else {
    d_x[target] = to_bf16(d_target);
  }
}

// With f16 on either side the row is worked on in f32; `scratch` holds one.
void cross_entropy_half_row(const CrossEntropyArgs& args, std::int64_t row, float* scratch) {
  const std::int64_t vocab = args.logits.dim(1);
  const Tensor wide{scratch, DType::f32, {1, vocab}};
  CrossEntropyArgs one = args;
  one.logits = args.logits.rows(row, row + 1);
  one.targets = args.targets.rows(row, row + 1);
  one.nll = args.nll.rows(row, row + 1);
  if (one.logits.dtype != DType::f32) {
    with_storage(one.logits.dtype, [&](auto from) HWY_ATTR {
      convert_run(one.logits.as<decltype(from)>(), scratch, vocab);
    });
    one.logits = wide;
  }
  if (!args.d_logits.empty()) one.d_logits = wide;
  cross_entropy_row<float, float>(one, 0);
  if (args.d_logits.empty()) return;
  const Tensor d_logits = args.d_logits.rows(row, row + 1);
  with_storage(d_logits.dtype,
               [&](auto to) HWY_ATTR { convert_run(scratch, d_logits.as<decltype(to)>(), vocab); });
}

void cross_entropy(const CrossEntropyArgs& args, float* scratch) {
  if (args.logits.dtype == DType::f16 || args.d_logits.dtype == DType::f16) {
    const std::int64_t vocab = args.logits.dim(1);
    parallel_ranges(args.logits.dim(0), rows_per_piece(vocab), [&](Range rows) HWY_ATTR {
      for (std::int64_t row = rows.begin; row < rows.end; ++row) {
        cross_entropy_half_row(args, row, scratch + thread_index() * vocab);
      }
    });
    return;
  }
  const bool from_f32 = args.logits.dtype == DType::f32;
  const bool to_f32 = args.d_logits.empty() || args.d_logits.dtype == DType::f32;
  parallel_ranges(args.logits.dim(0), rows_per_piece(args.logits.dim(1)), [&](Range rows) HWY_ATTR {
    for (std::int64_t row = rows.begin; row < rows.end; ++row) {
      if (from_f32) {
        to_f32 ? cross_entropy_row<float, float>(args, row)
               : cross_entropy_row<float, Bf16>(args, row);
      } else {
        to_f32 ? cross_entropy_row<Bf16, float>(args, row)
               : cross_entropy_row<Bf16, Bf16>(args, row);
      }
    }
  });
}

}  // namespace belay::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace belay {
namespace {

HWY_EXPORT(cross_entropy);

constexpr Candidate<CrossEntropyArgs> kCandidates[] = {
    {"simd",
     [](const CrossEntropyArgs& args) {
       return first_reason(unless_storable(args.logits),
                           args.d_logits.empty() ? nullptr : unless_storable(args.d_logits),
                           unless_f32(args.nll));
     },
     [](const CrossEntropyArgs& args) {
       const bool half = args.logits.dtype == DType::f16 || args.d_logits.dtype == DType::f16;
       return half ? static_cast<std::size_t>(thread_count() * args.logits.dim(1)) * sizeof(float)
                   : 0;
     },
     [](const CrossEntropyArgs& args, KernelContext& context) {
       HWY_DYNAMIC_DISPATCH(cross_entropy)(args, reinterpret_cast<float*>(context.workspace));
     }},
    kReferenceKernel<CrossEntropyArgs>};

}  // namespace

Candidates<CrossEntropyArgs> cpu_candidates(OpTag<CrossEntropyArgs>) {
  return kCandidates;
}

}  // namespace belay
#endif  // HWY_ONCE
