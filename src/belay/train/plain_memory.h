#pragma once
// What a training step would hold in memory if every fused operator were a composition of plain
// ones (device/plain/).

#include <cstddef>
#include <span>

#include "belay/device/kernel.h"

namespace belay {

// Bytes on top of those of the fused step:
//   scores, normalised, activated: what a forward pass of plain operators keeps for the backward
//     pass and a fused one computes again;
//   temporaries: what the most demanding moment needs beyond the fused step's temporaries, which is
//     either the loss, where the logits of all rows stand for those of one block, or the
//     intermediate results of one composition. Probabilities and the gradient of the logits are
//     taken to lie where the logits did.
struct PlainMemory {
  std::size_t scores = 0;      // attention probabilities, less the log-sum-exps that replace them
  std::size_t normalised = 0;  // (x - mean) rstd of every norm
  std::size_t activated = 0;   // inside activations
  std::size_t temporaries = 0;

  [[nodiscard]] std::size_t total() const { return scores + normalised + activated + temporaries; }
};

// Of the calls of one step with one micro-batch, as recorded. Touches no operand.
PlainMemory plain_memory(std::span<const OpCall> calls);

}  // namespace belay
