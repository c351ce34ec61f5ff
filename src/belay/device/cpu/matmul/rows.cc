#include "belay/device/cpu/matmul/rows.h"

#include <algorithm>
#include <array>

#include "belay/base/parallel.h"
#include "belay/base/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "belay/device/cpu/matmul/rows.cc"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
//
#include "belay/device/cpu/half-inl.h"

#ifndef BELAY_DEVICE_CPU_MATMUL_ROWS_ONCE
#define BELAY_DEVICE_CPU_MATMUL_ROWS_ONCE
namespace belay {
inline constexpr std::int64_t kMostRows = 4;
inline constexpr std::int64_t kColumns = 4;  // dot products per pass over a row of a
}  // namespace belay
#endif

HWY_BEFORE_NAMESPACE();
namespace belay {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::CappedTag<float, 16>;
using V = hn::Vec<D>;

HWY_ATTR inline V load_weights(const float* from) {
  return hn::LoadU(D(), from);
}
HWY_ATTR inline V load_weights(const Bf16* from) {
  const hn::Rebind<hwy::bfloat16_t, D> narrow;
  return hn::PromoteTo(D(), hn::LoadU(narrow, reinterpret_cast<const hwy::bfloat16_t*>(from)));
}
HWY_ATTR inline V load_weights(const F16* from) {
  return half::HWY_NAMESPACE::widen(
      D(), hn::LoadU(half::HWY_NAMESPACE::Bits<D>(), reinterpret_cast<const std::uint16_t*>(from)));
}
inline float as_float(float value) {
  return value;
}
inline float as_float(Bf16 value) {
  return to_float(value);
}
inline float as_float(F16 value) {
  return to_float(value);
}

// sums[row][col] = a[row, :] . weights[col, :], a being f32 rows of k.
template <int rows, int cols, class Weight>
HWY_ATTR void dot(const float* a, const Weight* weights, std::int64_t k,
                  float (&sums)[kMostRows][kColumns]) {
  const D d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  V totals[rows][cols];
  for (int row = 0; row < rows; ++row) {
    for (int col = 0; col < cols; ++col) totals[row][col] = hn::Zero(d);
  }
  std::int64_t i = 0;
  for (; i + lanes <= k; i += lanes) {
    V left[rows];
#pragma GCC unroll 4
    for (int row = 0; row < rows; ++row) left[row] = hn::LoadU(d, a + row * k + i);
#pragma GCC unroll 4
    for (int col = 0; col < cols; ++col) {
      const Weight* from = weights + col * k + i;
      hwy::Prefetch(from + cols * k);  // the next columns; streams of one row are short
      const V right = load_weights(from);
#pragma GCC unroll 4
      for (int row = 0; row < rows; ++row) {
        totals[row][col] = hn::MulAdd(left[row], right, totals[row][col]);
      }
    }
  }
  for (int row = 0; row < rows; ++row) {
    for (int col = 0; col < cols; ++col) {
      float sum = hn::GetLane(hn::SumOfLanes(d, totals[row][col]));
      for (std::int64_t j = i; j < k; ++j) sum += a[row * k + j] * as_float(weights[col * k + j]);
      sums[row][col] = sum;
    }
  }
}

template <int rows, class Weight>
void dot_columns(std::int64_t cols, const float* a, const Weight* weights, std::int64_t k,
                 float (&sums)[kMostRows][kColumns]) {
  if (cols == kColumns) {
    dot<rows, kColumns>(a, weights, k, sums);
    return;
  }
  for (std::int64_t col = 0; col < cols; ++col) {
    float one[kMostRows][kColumns];
    dot<rows, 1>(a, weights + col * k, k, one);
    for (int row = 0; row < rows; ++row) sums[row][col] = one[row][0];
  }
}

template <class Weight>
void dots(std::int64_t rows, std::int64_t cols, const float* a, const void* weights,
          std::int64_t first, std::int64_t k, float (&sums)[kMostRows][kColumns]) {
  const Weight* from = static_cast<const Weight*>(weights) + first * k;
  if (rows == 1) return dot_columns<1>(cols, a, from, k, sums);
  if (rows == 2) return dot_columns<2>(cols, a, from, k, sums);
  if (rows == 3) return dot_columns<3>(cols, a, from, k, sums);
  dot_columns<4>(cols, a, from, k, sums);
}

void dots_f32(std::int64_t rows, std::int64_t cols, const float* a, const void* weights,
              std::int64_t first, std::int64_t k, float (&sums)[kMostRows][kColumns]) {
  dots<float>(rows, cols, a, weights, first, k, sums);
}
void dots_bf16(std::int64_t rows, std::int64_t cols, const float* a, const void* weights,
               std::int64_t first, std::int64_t k, float (&sums)[kMostRows][kColumns]) {
  dots<Bf16>(rows, cols, a, weights, first, k, sums);
}
void dots_f16(std::int64_t rows, std::int64_t cols, const float* a, const void* weights,
              std::int64_t first, std::int64_t k, float (&sums)[kMostRows][kColumns]) {
  dots<F16>(rows, cols, a, weights, first, k, sums);
}

}  // namespace HWY_NAMESPACE
}  // namespace belay
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace belay {
namespace {

HWY_EXPORT(dots_f32);
HWY_EXPORT(dots_bf16);
HWY_EXPORT(dots_f16);

float element(const Tensor& tensor, std::int64_t at) {
  if (tensor.dtype == DType::f32) return tensor.as<float>()[at];
  if (tensor.dtype == DType::f16) return to_float(tensor.as<F16>()[at]);
  return to_float(tensor.as<Bf16>()[at]);
}

void finish(const MatmulArgs& args, std::int64_t row, std::int64_t col, float sum) {
  const std::int64_t at = row * args.n() + col;
  if (args.accumulate) sum += element(args.dst, at);
  if (!args.bias.empty()) sum += element(args.bias, col);
  if (args.dst.dtype == DType::f32) {
    args.dst.as<float>()[at] = sum;
  } else if (args.dst.dtype == DType::f16) {
    args.dst.as<F16>()[at] = to_f16(sum);
  } else {
    args.dst.as<Bf16>()[at] = to_bf16(sum);
  }
}

}  // namespace

const char* rows_declines(const MatmulArgs& args) {
  if (!is_storage(args.a.dtype) || !is_storage(args.dst.dtype)) {
    return "dtype is not f32, bf16 or f16";
  }
  if (!args.bias.empty() && !is_storage(args.bias.dtype)) return "bias is not f32, bf16 or f16";
  if (args.m() == 0 || args.n() == 0 || args.k() == 0) return "an empty operand";
  if (args.m() > kMostRows) return "more rows than this kernel is for";
  if (!args.transpose_b) return "weights do not lie along k";
  if (args.transpose_a && args.m() > 1) return "rows do not lie along k";
  return nullptr;
}

std::size_t rows_workspace(const MatmulArgs& args) {
  return args.a.dtype == DType::f32 ? 0
                                    : static_cast<std::size_t>(args.a.elements()) * sizeof(float);
}

void run_rows(const MatmulArgs& args, KernelContext& context) {
  const float* a = args.a.as<float>();
  const bool narrow = args.a.dtype != DType::f32;
  if (narrow) {
    auto* wide = reinterpret_cast<float*>(context.workspace);
    for (std::int64_t i = 0; i < args.a.elements(); ++i) wide[i] = element(args.a, i);
    a = wide;
  }
  constexpr std::int64_t kPieceElements = 1 << 16;  // of the weights
  const std::int64_t k = args.k();
  const std::int64_t grain = std::max(kColumns, kPieceElements / k / kColumns * kColumns);
  parallel_for(pieces_of(args.n(), grain), [&](std::int64_t piece) {
    const std::int64_t end = std::min(args.n(), (piece + 1) * grain);
    for (std::int64_t col = piece * grain; col < end; col += kColumns) {
      const std::int64_t cols = std::min(kColumns, end - col);
      float sums[kMostRows][kColumns];
      if (args.a.dtype == DType::bf16) {
        HWY_DYNAMIC_DISPATCH(dots_bf16)(args.m(), cols, a, args.b.data, col, k, sums);
      } else if (args.a.dtype == DType::f16) {
        HWY_DYNAMIC_DISPATCH(dots_f16)(args.m(), cols, a, args.b.data, col, k, sums);
      } else {
        HWY_DYNAMIC_DISPATCH(dots_f32)(args.m(), cols, a, args.b.data, col, k, sums);
      }
      for (std::int64_t row = 0; row < args.m(); ++row) {
        for (std::int64_t i = 0; i < cols; ++i) finish(args, row, col + i, sums[row][i]);
      }
    }
  });
}

}  // namespace belay
#endif
