// The output projection and its loss with the logits of all rows: the product, the passes of the
// cross-entropy over the whole of it, and the two products of the backward pass.

#include "belay/device/plain/workbench.h"

namespace belay::plain {

Composition compose(const Bench& bench, const LinearCrossEntropy& args) {
  Composition composition;
  Workbench work(bench, composition);
  const Tensor logits = work.scratch(args.logits, {args.hidden.dim(0), args.weight.dim(0)});
  CrossEntropyArgs entropy;
  entropy.logits = logits;
  entropy.targets = args.targets;
  entropy.nll = args.nll;
  entropy.scale = args.scale;
  entropy.z_loss = args.z_loss;
  if (!args.d_hidden.empty()) {
    const DType type = args.hidden.dtype;
    entropy.d_logits = type == args.logits ? logits : work.scratch(type, logits.shape);
  }
  const Composition loss = compose(bench, entropy);
  composition.scratch_bytes += loss.scratch_bytes;
  composition.run = [=, lane = &bench.lane] {
    launch(*lane, MatmulArgs{args.hidden, args.weight, {}, logits, false, true, false});
    lane->wait();
    loss.run();
    if (args.d_hidden.empty()) return;
    launch(*lane, MatmulArgs{entropy.d_logits, args.hidden, {}, args.d_weight, true, false, true});
    launch(*lane,
           MatmulArgs{entropy.d_logits, args.weight, {}, args.d_hidden, false, false, false});
    lane->wait();
  };
  return composition;
}

}  // namespace belay::plain
