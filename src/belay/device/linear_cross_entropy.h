#pragma once
// The output projection fused with the cross-entropy: logits exist for one block of rows at a time.
// For each block its logits, losses, and the gradients of the block's hidden states and of the
// weights are computed before the next one begins.

#include "belay/base/arena.h"
#include "belay/device/device.h"

namespace belay {

struct LinearCrossEntropy {
  Tensor hidden;    // [tokens, width]; f32, bf16 or f16
  Tensor weight;    // [vocab, width] of the dtype of hidden
  Tensor targets;   // [tokens] i32, or -1: the row does not count
  Tensor nll;       // [tokens] f32; 0 where not counted
  Tensor d_hidden;  // like hidden, overwritten; empty: no gradients wanted
  Tensor d_weight;  // [vocab, width] f32, accumulated
  DType logits = DType::f32;
  float scale = 1.0F;  // of the gradients; see CrossEntropyArgs
  float z_loss = 0.0F;
  std::int64_t block_rows = 0;  // rows of logits that exist at once

  [[nodiscard]] Cost cost() const {
    const double products = d_hidden.empty() ? 1.0 : 3.0;
    const auto tokens = static_cast<double>(hidden.dim(0));
    const auto vocab = static_cast<double>(weight.dim(0));
    return {tokens * vocab * (2.0 * products * static_cast<double>(hidden.dim(1)) + 5.0),
            static_cast<double>(hidden.bytes() + weight.bytes()) +
                (d_hidden.empty() ? 0.0
                                  : static_cast<double>(d_hidden.bytes() + 2 * d_weight.bytes()))};
  }
};

// Blocks are taken from `scratch`. Products behind the loss carry the tag "backward".
void linear_cross_entropy(Lane& lane, Arena& scratch, const LinearCrossEntropy& args);

}  // namespace belay
