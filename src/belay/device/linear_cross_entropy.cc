#include "belay/device/linear_cross_entropy.h"

#include <algorithm>

namespace belay {

void linear_cross_entropy(Lane& lane, Arena& scratch, const LinearCrossEntropy& args) {
  const std::int64_t tokens = args.hidden.dim(0);
  const std::int64_t vocab = args.weight.dim(0);
  const DType type = args.hidden.dtype;
  const std::string_view tag = lane.tag();
  for (std::int64_t begin = 0; begin < tokens; begin += args.block_rows) {
    const std::int64_t end = std::min(tokens, begin + args.block_rows);
    const ArenaScope scope(scratch);
    const Tensor src = args.hidden.rows(begin, end);
    const Tensor block = scratch.allocate(args.logits, {end - begin, vocab});
    launch(lane, MatmulArgs{src, args.weight, {}, block, false, true, false});

    CrossEntropyArgs entropy;
    entropy.logits = block;
    entropy.targets = args.targets.rows(begin, end);
    entropy.nll = args.nll.rows(begin, end);
    entropy.z_loss = args.z_loss;
    entropy.scale = args.scale;
    if (!args.d_hidden.empty()) {
      entropy.d_logits = type == args.logits ? block : scratch.allocate(type, block.shape);
    }
    launch(lane, entropy);
    if (args.d_hidden.empty()) continue;

    lane.set_tag("backward");
    launch(lane, MatmulArgs{entropy.d_logits, src, {}, args.d_weight, true, false, true});
    launch(lane, MatmulArgs{entropy.d_logits,
                            args.weight,
                            {},
                            args.d_hidden.rows(begin, end),
                            false,
                            false,
                            false});
    lane.set_tag(tag);
  }
}

}  // namespace belay
