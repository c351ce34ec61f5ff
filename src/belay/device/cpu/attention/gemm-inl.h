// Small matrix products on scratch that lives in the first cache levels: c = a b or c += a b with
// a addressed by two strides (so a transposed operand costs nothing) and read as scalars, b and c
// row-major in whole vectors. An element is a float, or a pair of bf16 that are neighbours along
// the summed dimension (pairs-inl.h), which halves the depth. Included once per instruction set.

#if defined(BELAY_ATTENTION_GEMM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef BELAY_ATTENTION_GEMM_INL_H_
#undef BELAY_ATTENTION_GEMM_INL_H_
#else
#define BELAY_ATTENTION_GEMM_INL_H_
#endif

#include "belay/device/cpu/attention/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace belay::attention::HWY_NAMESPACE {

template <class T>
struct Left {
  const T* data;
  std::int64_t row;    // distance of rows
  std::int64_t depth;  // distance along the summed dimension
};
template <class T>
struct Right {
  const T* data;
  std::int64_t stride;
};
struct Result {
  float* data;
  std::int64_t stride;
  bool accumulate;
};

HWY_INLINE Floats multiply_add(Floats left, Floats right, Floats sum) {
  return hn::MulAdd(left, right, sum);
}

// kRows x kVectors accumulators stay in registers over the whole depth.
template <int kRows, int kVectors, class T>
HWY_INLINE void gemm_block(Left<T> a, Right<T> b, Result c, std::int64_t depth) {
  const FloatTag tag;
  const hn::ScalableTag<T> elements;
  Floats sum[kRows][kVectors];
#pragma GCC unroll 8
  for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      sum[row][v] =
          c.accumulate ? hn::Load(tag, c.data + row * c.stride + v * kLanes) : hn::Zero(tag);
    }
  }
  for (std::int64_t k = 0; k < depth; ++k) {
    hn::Vec<decltype(elements)> right[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) right[v] = hn::Load(elements, b.data + v * kLanes);
#pragma GCC unroll 8
    for (int row = 0; row < kRows; ++row) {
      const auto left = hn::Set(elements, a.data[row * a.row]);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sum[row][v] = multiply_add(left, right[v], sum[row][v]);
    }
    a.data += a.depth;
    b.data += b.stride;
  }
#pragma GCC unroll 8
  for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      hn::Store(sum[row][v], tag, c.data + row * c.stride + v * kLanes);
    }
  }
}

template <int kVectors, class T>
HWY_NOINLINE void gemm_columns(Left<T> a, Right<T> b, Result c, std::int64_t rows,
                               std::int64_t depth) {
  const auto advance = [&](std::int64_t by) {
    rows -= by;
    a.data += by * a.row;
    c.data += by * c.stride;
  };
  while (rows >= 6) {
    gemm_block<6, kVectors>(a, b, c, depth);
    advance(6);
  }
  if (rows >= 4) {
    gemm_block<4, kVectors>(a, b, c, depth);
    advance(4);
  }
  if (rows >= 2) {
    gemm_block<2, kVectors>(a, b, c, depth);
    advance(2);
  }
  if (rows >= 1) gemm_block<1, kVectors>(a, b, c, depth);
}

// rows x columns result over `depth`; columns is a multiple of kStep.
template <class T>
HWY_INLINE void gemm(Left<T> a, Right<T> b, Result c, std::int64_t rows, std::int64_t columns,
                     std::int64_t depth) {
  constexpr int kStepVectors = static_cast<int>(kStep / kLanes);
  const auto advance = [&](std::int64_t by) {
    columns -= by;
    b.data += by;
    c.data += by;
  };
  // With 32 registers a block of four steps fits; with 16 only one does.
  if constexpr (kStepVectors == 1) {
    while (columns >= 4 * kStep) {
      gemm_columns<4>(a, b, c, rows, depth);
      advance(4 * kStep);
    }
    if (columns >= 3 * kStep) {
      gemm_columns<3>(a, b, c, rows, depth);
      advance(3 * kStep);
    }
    if (columns >= 2 * kStep) {
      gemm_columns<2>(a, b, c, rows, depth);
      advance(2 * kStep);
    }
  }
  while (columns >= kStep) {
    gemm_columns<kStepVectors>(a, b, c, rows, depth);
    advance(kStep);
  }
}

}  // namespace belay::attention::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
