#pragma once
// The output projection fused with the cross-entropy: logits exist for one block of rows at a time.

#include "belay/model/pass.h"

namespace belay {

struct Head {
  int weight = -1;              // "head.weight", or the embedding when tied
  std::int64_t block_rows = 0;  // rows of logits that exist at once
  float z_loss = 0;

  // normed [tokens, hidden] -> nll [tokens] f32 (0 where the target is -1). With d_normed also the
  // gradient of the *sum* of the losses, times the pass's loss_multiplier: d_normed is overwritten,
  // the weight's gradient accumulates. Division by the number of counted tokens and by the
  // multiplier is the optimizer's (grad_scale).
  void loss(const Pass& pass, const Tensor& normed, const Tensor& nll,
            const Tensor& d_normed) const;
  // logits [tokens, vocab] f32
  void logits(const Pass& pass, const Tensor& normed, const Tensor& logits) const;
};

}  // namespace belay
