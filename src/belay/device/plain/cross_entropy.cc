// Cross-entropy by separate passes over the logits: maximum, exponentials, sum, logarithm and
// gather, gradient, one-hot. Probabilities are f32 whatever the logits are stored as.

#include <cmath>

#include "belay/device/plain/workbench.h"
#include "belay/device/reference/element.h"

namespace belay::plain {
namespace {

struct RowStatistics {
  Tensor largest;  // [rows] f32
  Tensor sum;      // [rows] f32: of the exponentials; then what they are multiplied by
};

// nll from the statistics and the gathered target logits; leaves in `sum` the factor that makes
// gradients of exponentials.
void write_losses(const CrossEntropyArgs& args, const RowStatistics& statistics) {
  const std::int64_t vocab = args.logits.dim(1);
  for (std::int64_t row = 0; row < args.logits.dim(0); ++row) {
    const std::int32_t target = args.targets.as<std::int32_t>()[row];
    float& sum = statistics.sum.as<float>()[row];
    const double lse = static_cast<double>(statistics.largest.as<float>()[row]) +
                       std::log(static_cast<double>(sum));
    const double slope = 1.0 + 2.0 * static_cast<double>(args.z_loss) * lse;
    args.nll.as<float>()[row] =
        target < 0 ? 0.0F : static_cast<float>(lse - load(args.logits, row * vocab + target));
    sum = target < 0 ? 0.0F
                     : static_cast<float>(static_cast<double>(args.scale) * slope /
                                          static_cast<double>(sum));
  }
}

void subtract_one_hot(const CrossEntropyArgs& args) {
  const std::int64_t vocab = args.logits.dim(1);
  for (std::int64_t row = 0; row < args.logits.dim(0); ++row) {
    const std::int32_t target = args.targets.as<std::int32_t>()[row];
    if (target < 0) continue;
    const std::int64_t at = row * vocab + target;
    store(args.d_logits, at, load(args.d_logits, at) - static_cast<double>(args.scale));
  }
}

}  // namespace

Composition compose(const Bench& bench, const CrossEntropyArgs& args) {
  Composition composition;
  Workbench work(bench, composition);
  const Tensor probabilities = work.scratch(DType::f32, args.logits.shape);
  const RowStatistics statistics{work.scratch(DType::f32, {args.logits.dim(0)}),
                                 work.scratch(DType::f32, {args.logits.dim(0)})};
  composition.run = [=] {
    row_max(all(args.logits), statistics.largest.as<float>());
    exp_rows(all(args.logits), statistics.largest.as<float>(), all(probabilities));
    row_sum(all(probabilities), statistics.sum.as<float>());
    write_losses(args, statistics);
    if (args.d_logits.empty()) return;
    normalise_rows(all(probabilities), nullptr, statistics.sum.as<float>(), all(args.d_logits));
    subtract_one_hot(args);
  };
  return composition;
}

}  // namespace belay::plain
