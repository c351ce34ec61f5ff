// AdamW in one pass, and the sum of squares that gradient clipping needs.

#include <bit>
#include <cmath>

#include "belay/device/cpu/kernels.h"
#include "belay/device/cpu/pieces.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "belay/device/cpu/adamw.cc"
// foreach_target.h compiles this file again per instruction set, so the order matters.
// clang-format off
#include "belay/base/simd_targets.h"
#include "hwy/foreach_target.h"
#include "belay/device/cpu/simd.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace belay::HWY_NAMESPACE {

// grad_scale as a product of two f32 factors. The first is a power of two, 1 unless the scale
// itself leaves the normal range of f32; so the product keeps full precision where the scaled
// gradient fits f32, however large or small the gradients are.
struct SplitScale {
  float power;
  float rest;
};
SplitScale split_scale(double scale) {
  if (scale == 0.0 || !std::isfinite(scale)) return {1.0F, static_cast<float>(scale)};
  int exponent = 0;
  std::frexp(scale, &exponent);
  int shift = 0;
  if (exponent < -100) shift = std::max(exponent + 100, -126);
  if (exponent > 100) shift = std::min(exponent - 100, 126);
  return {std::ldexp(1.0F, shift), static_cast<float>(std::ldexp(scale, -shift))};
}

// Copy: what the copy of the weights is stored as; float: there is none.
template <class Copy>
void adamw_run(const AdamwArgs& args, Range run) {
  const auto [power, rest] = split_scale(args.grad_scale);
  const Vec scale_power = splat(power);
  const Vec scale_rest = splat(rest);
  const Vec beta1 = splat(args.beta1);
  const Vec beta2 = splat(args.beta2);
  const Vec one_minus_beta1 = splat(static_cast<float>(1.0 - static_cast<double>(args.beta1)));
  const Vec one_minus_beta2 = splat(static_cast<float>(1.0 - static_cast<double>(args.beta2)));
  const double lr = static_cast<double>(args.lr);
  const Vec decay = splat(static_cast<float>(lr * static_cast<double>(args.weight_decay)));
  const Vec step = splat(static_cast<float>(lr / static_cast<double>(args.correction1)));
  const Vec root_scale =
      splat(static_cast<float>(1.0 / std::sqrt(static_cast<double>(args.correction2))));
  const Vec eps = splat(args.eps);
  float* weights = args.weights.as<float>() + run.begin;
  float* grad = args.grad.as<float>() + run.begin;
  float* m = args.m.as<float>() + run.begin;
  float* v = args.v.as<float>() + run.begin;
  constexpr bool kCopy = !std::is_same_v<Copy, float>;
  Copy* copy = kCopy ? args.copy.as<Copy>() + run.begin : nullptr;
  for_vectors(run.size(), [&](auto access, std::int64_t i) HWY_ATTR {
    const Vec g = hn::Mul(hn::Mul(access.load(grad + i), scale_power), scale_rest);
    const Vec new_m = hn::MulAdd(beta1, access.load(m + i), hn::Mul(one_minus_beta1, g));
    const Vec new_v =
        hn::MulAdd(beta2, access.load(v + i), hn::Mul(hn::Mul(one_minus_beta2, g), g));
    const Vec denominator = hn::MulAdd(hn::Sqrt(new_v), root_scale, eps);
    const Vec old = access.load(weights + i);
    const Vec decayed = hn::NegMulAdd(decay, old, old);
    const Vec updated = hn::NegMulAdd(step, hn::Div(new_m, denominator), decayed);
    access.store(new_m, m + i);
    access.store(new_v, v + i);
    access.store(updated, weights + i);
    access.store(hn::Zero(kF32), grad + i);
    if constexpr (kCopy) access.store(updated, copy + i);
  });
}

void adamw(const AdamwArgs& args) {
  parallel_ranges(args.weights.elements(), kPieceElements, [&](Range run) HWY_ATTR {
    const DType copy = args.copy.empty() ? DType::f32 : args.copy.dtype;
    with_storage(copy, [&](auto as) HWY_ATTR { adamw_run<decltype(as)>(args, run); });
  });
}

double squares_of(const float* src, std::int64_t count) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> half;
  const auto step = static_cast<std::int64_t>(hn::Lanes(d));
  auto sum0 = hn::Zero(d);
  auto sum1 = sum0;
  auto sum2 = sum0;
  auto sum3 = sum0;
  const auto at = [&](std::int64_t i)
                      HWY_ATTR { return hn::PromoteTo(d, hn::LoadU(half, src + i)); };
  std::int64_t i = 0;
  for (; i + 4 * step <= count; i += 4 * step) {
    const auto a = at(i);
    const auto b = at(i + step);
    const auto c = at(i + 2 * step);
    const auto e = at(i + 3 * step);
    sum0 = hn::MulAdd(a, a, sum0);
    sum1 = hn::MulAdd(b, b, sum1);
    sum2 = hn::MulAdd(c, c, sum2);
    sum3 = hn::MulAdd(e, e, sum3);
  }
  double sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3))));
  for (; i < count; ++i) sum += static_cast<double>(src[i]) * static_cast<double>(src[i]);
  return sum;
}

// A large piece is itself summed run by run, small ones are taken several at a time.
void sum_of_squares(const SumOfSquaresArgs& args, double* partials) {
  const std::int64_t count = args.src.elements();
  const std::int64_t piece = args.piece == 0 ? std::max<std::int64_t>(1, count) : args.piece;
  const std::int64_t pieces = args.pieces();
  const auto* src = args.src.as<float>();
  auto* dst = args.dst.as<double>();
  if (piece <= kPieceElements) {
    parallel_ranges(pieces, kPieceElements / piece, [&](Range run) HWY_ATTR {
      for (std::int64_t j = run.begin; j < run.end; ++j) {
        dst[j] = squares_of(src + j * piece, std::min(piece, count - j * piece));
      }
    });
    return;
  }
  const std::int64_t runs = pieces_of(piece, kPieceElements);  // of a piece
  parallel_for(pieces * runs, [&](std::int64_t index) HWY_ATTR {
    const std::int64_t end = std::min(count, (index / runs + 1) * piece);
    const std::int64_t begin = index / runs * piece + index % runs * kPieceElements;
    partials[index] =
        begin < end ? squares_of(src + begin, std::min(kPieceElements, end - begin)) : 0.0;
  });
  for (std::int64_t j = 0; j < pieces; ++j) {
    double sum = 0;
    for (std::int64_t run = 0; run < runs; ++run) sum += partials[j * runs + run];
    dst[j] = sum;
  }
}

}  // namespace belay::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace belay {
namespace {

HWY_EXPORT(adamw);
HWY_EXPORT(sum_of_squares);

constexpr Candidate<AdamwArgs> kAdamw[] = {
    {"simd",
     [](const AdamwArgs& args) {
       return first_reason(
           unless_f32(args.weights), unless_f32(args.grad), unless_f32(args.m), unless_f32(args.v),
           args.copy.empty() || (args.copy.dtype != DType::f32 && is_storage(args.copy.dtype))
               ? nullptr
               : "the copy is neither bf16 nor f16");
     },
     nullptr,
     [](const AdamwArgs& args, KernelContext&) {
       HWY_DYNAMIC_DISPATCH(adamw)
       (args);
     }},
    kReferenceKernel<AdamwArgs>};

constexpr Candidate<SumOfSquaresArgs> kSumOfSquares[] = {
    {"simd", [](const SumOfSquaresArgs& args) { return unless_f32(args.src); },
     [](const SumOfSquaresArgs& args) {
       const std::int64_t piece = args.piece == 0 ? args.src.elements() : args.piece;
       if (piece <= kPieceElements) return std::size_t{0};
       return static_cast<std::size_t>(args.pieces() * pieces_of(piece, kPieceElements)) *
              sizeof(double);
     },
     [](const SumOfSquaresArgs& args, KernelContext& context) {
       HWY_DYNAMIC_DISPATCH(sum_of_squares)
       (args, reinterpret_cast<double*>(context.workspace));
     }},
    kReferenceKernel<SumOfSquaresArgs>};

}  // namespace

Candidates<AdamwArgs> cpu_candidates(OpTag<AdamwArgs>) {
  return kAdamw;
}
Candidates<SumOfSquaresArgs> cpu_candidates(OpTag<SumOfSquaresArgs>) {
  return kSumOfSquares;
}

}  // namespace belay
#endif  // HWY_ONCE
