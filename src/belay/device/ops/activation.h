#pragma once
// Pointwise activations of the feed-forward block, plain and gated.
//   gelu_tanh: x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))   Hendrycks & Gimpel, 1606.08415
//   gelu_erf:  x/2 (1 + erf(x / sqrt(2)))
//   silu:      x / (1 + exp(-x))
// Gated (Shazeer, arXiv:2002.05202): dst = act(gate) * up.

#include "belay/base/tensor.h"
#include "belay/device/kernel.h"

namespace belay {

enum class Activation : std::uint8_t { gelu_tanh, gelu_erf, silu };

struct ActivationForwardArgs {
  static constexpr std::string_view kName = "activation_forward";

  Activation kind = Activation::gelu_tanh;
  bool gated = false;
  Tensor src;  // [tokens, ffn], or [tokens, 2*ffn] = gate | up when gated; f32, bf16 or f16
  Tensor dst;  // [tokens, ffn]

  [[nodiscard]] Cost cost() const {
    return {10.0 * static_cast<double>(dst.elements()),
            static_cast<double>(src.bytes() + dst.bytes())};
  }
  [[nodiscard]] DType arithmetic() const { return src.dtype; }
  template <class Visit>
  void each_result(Visit&& visit) const {
    visit("dst", dst);
  }
  void check() const {
    BELAY_CHECK(src.dim(0) == dst.dim(0) && src.dim(1) == dst.dim(1) * (gated ? 2 : 1));
  }
};

struct ActivationBackwardArgs {
  static constexpr std::string_view kName = "activation_backward";

  Activation kind = Activation::gelu_tanh;
  bool gated = false;
  Tensor src;    // forward's src
  Tensor d_dst;  // [tokens, ffn]
  Tensor d_src;  // like src; overwritten; may alias src

  [[nodiscard]] Cost cost() const {
    return {16.0 * static_cast<double>(d_dst.elements()),
            static_cast<double>(src.bytes() + d_dst.bytes() + d_src.bytes())};
  }
  [[nodiscard]] DType arithmetic() const { return src.dtype; }
  template <class Visit>
  void each_result(Visit&& visit) const {
    visit("d_src", d_src);
  }
  void check() const {
    BELAY_CHECK(src.shape == d_src.shape && src.dim(1) == d_dst.dim(1) * (gated ? 2 : 1));
  }
};

}  // namespace belay
