#pragma once
// AdamW in one pass over the state (Loshchilov & Hutter, arXiv:1711.05101, alg. 2, decoupled decay
// scaled by the learning rate as in PyTorch):
//   g = grad * grad_scale;  m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g^2
//   w = w - lr * decay * w - lr * (m / correction1) / (sqrt(v / correction2) + eps)

#include "belay/base/tensor.h"
#include "belay/device/kernel.h"

namespace belay {

struct AdamwArgs {
  static constexpr std::string_view kName = "adamw";

  Tensor weights;  // [n] f32, updated
  Tensor grad;     // [n] f32; left as exact zeros for the next accumulation
  Tensor m;        // [n] f32, updated
  Tensor v;        // [n] f32, updated
  Tensor copy;     // [n] bf16 or f16: the new weights rounded, or empty
  float lr = 0;
  float beta1 = 0.9F;
  float beta2 = 0.999F;
  float eps = 1e-8F;
  float weight_decay = 0;
  float correction1 = 1;  // 1 - beta1^step
  float correction2 = 1;  // 1 - beta2^step
  double grad_scale = 1;  // clipping and unscaling; applied in double before rounding to f32

  [[nodiscard]] Cost cost() const {
    const auto n = static_cast<double>(weights.elements());
    return {15.0 * n, n * (copy.empty() ? 32.0 : 34.0)};
  }
  [[nodiscard]] DType arithmetic() const { return DType::f32; }
  template <class Visit>
  void each_result(Visit&& visit) const {
    visit("weights", weights);
    visit("m", m);
    visit("v", v);
    visit("copy", copy);
  }
  void check() const {
    BELAY_CHECK(weights.dtype == DType::f32 && grad.elements() == weights.elements());
    BELAY_CHECK(m.elements() == weights.elements() && v.elements() == weights.elements());
    BELAY_CHECK(copy.empty() || copy.elements() == weights.elements());
  }
};

// dst[j] = sum of src[i]^2 over the j-th `piece` elements in f64, in an order that does not depend
// on threads, nor on the other pieces. Non-finite input gives a non-finite result (finite f32
// cannot overflow f64 here).
struct SumOfSquaresArgs {
  static constexpr std::string_view kName = "sum_of_squares";

  Tensor src;              // f32
  Tensor dst;              // [pieces] f64, overwritten
  std::int64_t piece = 0;  // elements; 0: all are one

  [[nodiscard]] std::int64_t pieces() const {
    return piece == 0 ? 1 : (src.elements() + piece - 1) / piece;
  }
  [[nodiscard]] Cost cost() const {
    return {2.0 * static_cast<double>(src.elements()), static_cast<double>(src.bytes())};
  }
  [[nodiscard]] DType arithmetic() const { return DType::f32; }
  template <class Visit>
  void each_result(Visit&& visit) const {
    visit("dst", dst);
  }
  void check() const {
    BELAY_CHECK(src.dtype == DType::f32 && dst.dtype == DType::f64);
    BELAY_CHECK(dst.elements() == pieces());
  }
};

}  // namespace belay
