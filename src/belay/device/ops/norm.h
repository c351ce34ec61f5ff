#pragma once
// Normalisation fused with the residual addition.
//   layer: y = (x - mean) * rstd * weight + bias      Ba et al., arXiv:1607.06450, eq. 4
//   rms:   y = x * rstd * weight, rstd = 1/sqrt(mean(x^2) + eps)   Zhang & Sennrich, 1910.07467,
//   eq. 4
// Statistics are f32 whatever the storage type, unless `inside` says otherwise.

#include "belay/base/tensor.h"
#include "belay/device/kernel.h"
#include "belay/device/ops/inside.h"

namespace belay {

enum class NormKind : std::uint8_t { layer, rms };

// x = src (+ residual); sum = x as stored; dst = norm(sum) * weight (+ bias)
struct NormForwardArgs {
  static constexpr std::string_view kName = "norm_forward";

  NormKind kind = NormKind::layer;
  Tensor src;       // [tokens, hidden]; f32, bf16 or f16
  Tensor residual;  // like src, or empty
  Tensor weight;    // [hidden] f32
  Tensor bias;      // [hidden] f32, or empty
  float eps = 1e-5F;
  Tensor sum;   // like src; empty exactly when residual is empty; may alias residual or src
  Tensor dst;   // like src
  Tensor mean;  // [tokens] f32; empty for rms
  Tensor rstd;  // [tokens] f32
  Inside inside = Inside::full;  // the sums of the statistics, and mean and rstd

  [[nodiscard]] Cost cost() const {
    const double tensors = residual.empty() ? 2.0 : 4.0;
    return {8.0 * static_cast<double>(src.elements()), tensors * static_cast<double>(src.bytes())};
  }
  [[nodiscard]] DType arithmetic() const { return inside == Inside::full ? DType::f32 : src.dtype; }
  template <class Visit>
  void each_result(Visit&& visit) const {
    visit("sum", sum);
    visit("dst", dst);
    visit("mean", mean);
    visit("rstd", rstd);
  }
  void check() const {
    BELAY_CHECK(src.shape.rank() == 2 && dst.shape == src.shape);
    BELAY_CHECK(residual.empty() == sum.empty());
    BELAY_CHECK((kind == NormKind::layer) == !mean.empty());
  }
};

// d_src = gradient through the norm (+ d_residual); d_weight and d_bias accumulate.
struct NormBackwardArgs {
  static constexpr std::string_view kName = "norm_backward";

  NormKind kind = NormKind::layer;
  Tensor src;         // [tokens, hidden]: what was normalised (forward's sum)
  Tensor weight;      // [hidden] f32
  Tensor mean;        // [tokens] f32; empty for rms
  Tensor rstd;        // [tokens] f32
  Tensor d_dst;       // like src
  Tensor d_residual;  // like src: gradient that reaches sum by its other use, or empty
  Tensor d_src;       // like src; may alias d_dst or d_residual
  Tensor d_weight;    // [hidden] f32, accumulated
  Tensor d_bias;      // [hidden] f32, accumulated, or empty

  [[nodiscard]] Cost cost() const {
    const double tensors = d_residual.empty() ? 3.0 : 4.0;
    return {14.0 * static_cast<double>(src.elements()), tensors * static_cast<double>(src.bytes())};
  }
  [[nodiscard]] DType arithmetic() const { return DType::f32; }
  template <class Visit>
  void each_result(Visit&& visit) const {
    visit("d_src", d_src);
    visit("d_weight", d_weight);
    visit("d_bias", d_bias);
  }
  void check() const {
    BELAY_CHECK(src.shape.rank() == 2 && d_dst.shape == src.shape && d_src.shape == src.shape);
    BELAY_CHECK(d_weight.dtype == DType::f32);
    BELAY_CHECK((kind == NormKind::layer) == !mean.empty());
  }
};

}  // namespace belay
