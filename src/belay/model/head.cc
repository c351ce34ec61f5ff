#include "belay/model/head.h"

#include "belay/device/linear_cross_entropy.h"

namespace belay {

void Head::logits(const Pass& pass, const Tensor& normed, const Tensor& logits) const {
  const Tensor w = pass.parameters.weight(weight);
  launch(pass.lane, MatmulArgs{normed, w, {}, logits, false, true, false});
}

void Head::loss(const Pass& pass, const Tensor& normed, const Tensor& nll,
                const Tensor& d_normed) const {
  LinearCrossEntropy args;
  args.hidden = normed;
  args.weight = pass.parameters.weight(weight);
  args.targets = pass.inputs.targets.reshaped({normed.dim(0)});
  args.nll = nll;
  args.d_hidden = d_normed;
  if (!d_normed.empty()) args.d_weight = pass.parameters.grad(weight);
  args.logits = pass.protection.softmax ? DType::f32 : pass.dtype();
  args.scale = pass.loss_multiplier;
  args.z_loss = z_loss;
  args.block_rows = block_rows;
  linear_cross_entropy(pass.lane, pass.scratch, args);
}

}  // namespace belay
