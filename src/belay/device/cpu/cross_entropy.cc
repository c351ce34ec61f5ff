// Softmax cross-entropy and its gradient. Two passes over a row: the first finds the log-sum-exp
// block by block with a running maximum (Milakov & Gimelshein, arXiv:1805.02867), the second writes
// the gradient. A row of usual width is still in the second-level cache for the second pass.

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

template <class T>
SoftmaxStats softmax_stats(const T* x, std::int64_t vocab) {
  SoftmaxStats stats{std::numeric_limits<float>::lowest(), 0};
  for (std::int64_t begin = 0; begin < vocab; begin += kBlock) {
    const T* block = x + begin;
    const std::int64_t count = std::min(kBlock, vocab - begin);
    const float largest = largest_of(block, count);
    if (largest > stats.largest) {
      const double fall = static_cast<double>(stats.largest) - static_cast<double>(largest);
      stats = {largest, stats.sum * std::exp(fall)};
    }
    const Vec shift = splat(stats.largest);
    // NaN anywhere survives into the sum.
    stats.sum += static_cast<double>(sum_over(count, [&](auto access, std::int64_t i) HWY_ATTR {
      return exp_nonpositive(hn::Sub(access.load(block + i), shift));
    }));
  }
  return stats;
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
  const SoftmaxStats stats = softmax_stats(x, vocab);
  const double log_sum = std::log(stats.sum);
  float target_logit;
  if constexpr (std::is_same_v<From, float>) {
    target_logit = x[target];
  } else {
    target_logit = to_float(x[target]);
  }
  const double below = static_cast<double>(target_logit) - static_cast<double>(stats.largest);
  nll = static_cast<float>(log_sum - below);
  if (d_x == nullptr) return;

  const double lse = static_cast<double>(stats.largest) + log_sum;
  const double slope = 1.0 + 2.0 * static_cast<double>(args.z_loss) * lse;
  const double scale = static_cast<double>(args.scale);
  const Vec factor = splat(static_cast<float>(scale * slope / stats.sum));
  const Vec shift = splat(stats.largest);
  for_vectors(vocab, [&](auto access, std::int64_t i) HWY_ATTR {
    const Vec e = exp_nonpositive(hn::Sub(access.load(x + i), shift));
    access.store(hn::Mul(e, factor), d_x + i);
  });
  const double p = std::exp(below - log_sum);
  const auto d_target = static_cast<float>(scale * (slope * p - 1.0));
  if constexpr (std::is_same_v<To, float>) {
    d_x[target] = d_target;
  } else {
    d_x[target] = to_bf16(d_target);
  }
}

void cross_entropy(const CrossEntropyArgs& args) {
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
       return first_reason(unless_f32_or_bf16(args.logits),
                           args.d_logits.empty() ? nullptr : unless_f32_or_bf16(args.d_logits),
                           unless_f32(args.nll));
     },
     nullptr,
     [](const CrossEntropyArgs& args, KernelContext&) {
       HWY_DYNAMIC_DISPATCH(cross_entropy)(args);
     }},
    kReferenceKernel<CrossEntropyArgs>};

}  // namespace

Candidates<CrossEntropyArgs> cpu_candidates(OpTag<CrossEntropyArgs>) {
  return kCandidates;
}

}  // namespace belay
#endif  // HWY_ONCE
