#pragma once
// dst[m,n] = op(a) · op(b) (+ bias[n]) (+ dst), accumulated in f32.

#include <cstdint>

#include "belay/base/tensor.h"
#include "belay/device/kernel.h"

namespace belay {

struct MatmulArgs {
  static constexpr std::string_view kName = "matmul";

  Tensor a;     // [m,k], or [k,m] when transpose_a; f32, bf16 or f16
  Tensor b;     // [k,n], or [n,k] when transpose_b; dtype of a
  Tensor bias;  // [n] of the dtype of a, or empty
  Tensor dst;   // [m,n]; f32, bf16 or f16
  bool transpose_a = false;
  bool transpose_b = false;
  bool accumulate = false;  // add to dst instead of overwriting it

  [[nodiscard]] std::int64_t m() const { return dst.dim(0); }
  [[nodiscard]] std::int64_t n() const { return dst.dim(1); }
  [[nodiscard]] std::int64_t k() const { return a.dim(transpose_a ? 0 : 1); }

  [[nodiscard]] Cost cost() const {
    return {2.0 * static_cast<double>(m()) * static_cast<double>(n()) * static_cast<double>(k()),
            static_cast<double>(a.bytes() + b.bytes() + dst.bytes() * (accumulate ? 2 : 1))};
  }
  [[nodiscard]] DType arithmetic() const { return a.dtype; }
  template <class Visit>
  void each_result(Visit&& visit) const {
    visit("dst", dst);
  }
  void check() const {
    BELAY_CHECK(a.shape.rank() == 2 && b.shape.rank() == 2 && dst.shape.rank() == 2);
    BELAY_CHECK(a.dim(transpose_a ? 1 : 0) == m() && b.dim(transpose_b ? 1 : 0) == k() &&
                b.dim(transpose_b ? 0 : 1) == n());
    BELAY_CHECK(a.dtype == b.dtype && (bias.empty() || bias.elements() == n()));
  }
};

}  // namespace belay
