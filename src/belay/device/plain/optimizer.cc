// AdamW by separate passes: unscale, first moment, second moment, denominator, update, copy, zeros.

#include <cmath>

#include "belay/device/plain/workbench.h"

namespace belay::plain {

Composition compose(const Bench& bench, const AdamwArgs& args) {
  Composition composition;
  Workbench work(bench, composition);
  const Tensor denominator = work.scratch(DType::f32, {args.weights.elements()});
  composition.run = [=, lane = &bench.lane] {
    const double lr = static_cast<double>(args.lr);
    affine(all(args.grad), static_cast<float>(args.grad_scale), 0.0F, all(args.grad));
    blend(args.beta1, args.m, 1.0F - args.beta1, args.grad);
    blend_square(args.beta2, args.v, 1.0F - args.beta2, args.grad);
    const double correction2 = static_cast<double>(args.correction2);
    root(args.v, static_cast<float>(1.0 / std::sqrt(correction2)), args.eps, denominator);
    blend_quotient(static_cast<float>(1.0 - lr * static_cast<double>(args.weight_decay)),
                   args.weights, static_cast<float>(-lr / static_cast<double>(args.correction1)),
                   args.m, denominator);
    if (!args.copy.empty()) launch(*lane, CastArgs{args.weights, args.copy});
    launch(*lane, FillArgs{args.grad, 0.0});
    lane->wait();
  };
  return composition;
}

}  // namespace belay::plain
