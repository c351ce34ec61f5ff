#include "belay/model/head.h"

#include <algorithm>

namespace belay {

void Head::logits(const Pass& pass, const Tensor& normed, const Tensor& logits) const {
  const Tensor w = pass.parameters.weight(weight);
  launch(pass.lane, MatmulArgs{normed, w, {}, logits, false, true, false});
}

void Head::loss(const Pass& pass, const Tensor& normed, const Tensor& nll,
                const Tensor& d_normed) const {
  const Tensor w = pass.parameters.weight(weight);
  const std::int64_t tokens = normed.dim(0);
  const std::int64_t vocab = w.dim(0);
  const Tensor targets = pass.inputs.targets.reshaped({tokens});
  const std::string_view tag = pass.lane.tag();
  for (std::int64_t begin = 0; begin < tokens; begin += block_rows) {
    const std::int64_t end = std::min(tokens, begin + block_rows);
    const ArenaScope scope(pass.scratch);
    const Tensor src = normed.rows(begin, end);
    const DType type = pass.protection.softmax ? DType::f32 : pass.dtype();
    const Tensor block = pass.scratch.allocate(type, {end - begin, vocab});
    logits(pass, src, block);

    CrossEntropyArgs entropy;
    entropy.logits = block;
    entropy.targets = targets.rows(begin, end);
    entropy.nll = nll.rows(begin, end);
    entropy.z_loss = z_loss;
    entropy.scale = pass.loss_multiplier;
    if (!d_normed.empty()) {
      entropy.d_logits = pass.dtype() == type ? block : pass.temporary(block.shape);
    }
    launch(pass.lane, entropy);
    if (d_normed.empty()) continue;

    pass.lane.set_tag("backward");
    launch(pass.lane,
           MatmulArgs{entropy.d_logits, src, {}, pass.parameters.grad(weight), true, false, true});
    launch(pass.lane,
           MatmulArgs{entropy.d_logits, w, {}, d_normed.rows(begin, end), false, false, false});
    pass.lane.set_tag(tag);
  }
}

}  // namespace belay
