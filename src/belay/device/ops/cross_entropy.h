#pragma once
// Softmax cross-entropy on a block of logits and its gradient in one go.
//   nll = lse - logits[target];   loss = nll + z_loss * lse^2   (z-loss: Chowdhery et al.,
//   2204.02311) d_logits = scale * ((1 + 2 z_loss lse) * softmax - onehot(target))

#include "belay/base/tensor.h"
#include "belay/device/kernel.h"

namespace belay {

struct CrossEntropyArgs {
  static constexpr std::string_view kName = "cross_entropy";

  Tensor logits;    // [rows, vocab] f32, bf16 or f16
  Tensor targets;   // [rows] i32 in [0, vocab), or -1: the row does not count
  Tensor nll;       // [rows] f32, without the z term; 0 where not counted
  Tensor d_logits;  // [rows, vocab] f32, bf16 or f16; may alias logits when the dtypes are equal;
                    // rows that do not count become exactly 0; empty: no gradient wanted
  float scale = 1.0F;
  float z_loss = 0.0F;

  [[nodiscard]] Cost cost() const {
    return {5.0 * static_cast<double>(logits.elements()),
            static_cast<double>(logits.bytes()) +
                (d_logits.empty() ? 0.0 : static_cast<double>(d_logits.bytes()))};
  }
  [[nodiscard]] DType arithmetic() const { return logits.dtype; }
  template <class Visit>
  void each_result(Visit&& visit) const {
    visit("nll", nll);
    visit("d_logits", d_logits);
  }
  void check() const {
    BELAY_CHECK(targets.elements() == logits.dim(0) && nll.elements() == logits.dim(0));
    BELAY_CHECK(d_logits.empty() || d_logits.shape == logits.shape);
  }
};

}  // namespace belay
