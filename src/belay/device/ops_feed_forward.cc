// The feed-forward block as a benchmark: products, activation and what backward adds, as the layers
// launch them (model/block.cc).

#include <fmt/core.h>

#include "belay/device/ops_workloads.h"

namespace belay {
namespace {

constexpr std::int64_t kTokens = 4096;
constexpr std::int64_t kHidden = 768;
constexpr std::int64_t kFfn = 4 * kHidden;

struct Block {
  Activation kind = Activation::gelu_tanh;
  bool gated = false;
  Tensor x;          // [tokens, hidden]
  Tensor up_weight;  // [ffn or 2 ffn, hidden]
  Tensor up;         // before the activation
  Tensor activated;
  Tensor down_weight;  // [hidden, ffn]
  Tensor y;
};

Block make_block(BenchOperands& operands, DType dtype, Activation kind, bool gated) {
  const std::int64_t up = gated ? 2 * kFfn : kFfn;
  Block block;
  block.kind = kind;
  block.gated = gated;
  block.x = operands.real(dtype, {kTokens, kHidden});
  block.up_weight = operands.real(dtype, {up, kHidden}, -0.05, 0.05);
  block.up = operands.real(dtype, {kTokens, up});
  block.activated = operands.real(dtype, {kTokens, kFfn});
  block.down_weight = operands.real(dtype, {kHidden, kFfn}, -0.05, 0.05);
  block.y = operands.real(dtype, {kTokens, kHidden});
  return block;
}

double product_flops(const Block& block) {
  return 2.0 * static_cast<double>(kTokens) *
         static_cast<double>(block.up_weight.elements() + block.down_weight.elements());
}

// What comes from memory and goes there whatever the order of the work.
double outer_bytes(const Block& block) {
  return static_cast<double>(block.x.bytes() + block.up_weight.bytes() + block.up.bytes() +
                             block.down_weight.bytes() + block.y.bytes());
}

BenchJob forward_job(BenchOperands& operands, const Block& block) {
  const MatmulArgs into{block.x, block.up_weight, {}, block.up, false, true, false};
  const ActivationForwardArgs bend{block.kind, block.gated, block.up, block.activated};
  const MatmulArgs out{block.activated, block.down_weight, {}, block.y, false, true, false};
  BenchJob job{"products and activation",
               {product_flops(block) + bend.cost().flops, outer_bytes(block)},
               0,
               {},
               {}};
  job.run = [=, &lane = operands.lane()] {
    launch(lane, into);
    launch(lane, bend);
    launch(lane, out);
    lane.wait();
  };
  job.plain = [=](const plain::Bench& bench) {
    plain::Composition composition = plain::compose(bench, bend);
    composition.run = [=, &lane = bench.lane, activation = composition.run] {
      launch(lane, into);
      lane.wait();
      activation();
      launch(lane, out);
      lane.wait();
    };
    return composition;
  };
  return job;
}

BenchJob backward_job(BenchOperands& operands, const Block& block) {
  const Tensor d_y = operands.real(block.y.dtype, block.y.shape);
  const Tensor d_activated = operands.real(block.y.dtype, block.activated.shape);
  const Tensor d_x = operands.real(block.y.dtype, block.x.shape);
  const Tensor d_up_weight = operands.real(DType::f32, block.up_weight.shape);
  const Tensor d_down_weight = operands.real(DType::f32, block.down_weight.shape);
  const MatmulArgs down_weight{d_y, block.activated, {}, d_down_weight, true, false, true};
  const MatmulArgs down{d_y, block.down_weight, {}, d_activated, false, false, false};
  const ActivationBackwardArgs bend{block.kind, block.gated, block.up, d_activated, block.up};
  const MatmulArgs up_weight{block.up, block.x, {}, d_up_weight, true, false, true};
  const MatmulArgs up{block.up, block.up_weight, {}, d_x, false, false, false};
  const double bytes = outer_bytes(block) + static_cast<double>(block.x.bytes()) +
                       2.0 * static_cast<double>(d_up_weight.bytes() + d_down_weight.bytes()) +
                       static_cast<double>(block.activated.bytes());
  BenchJob job{"products and activation",
               {2.0 * product_flops(block) + bend.cost().flops, bytes},
               0,
               {},
               {}};
  job.run = [=, &lane = operands.lane()] {
    launch(lane, down_weight);
    launch(lane, down);
    launch(lane, bend);
    launch(lane, up_weight);
    launch(lane, up);
    lane.wait();
  };
  job.plain = [=](const plain::Bench& bench) {
    plain::Composition composition = plain::compose(bench, bend);
    composition.run = [=, &lane = bench.lane, activation = composition.run] {
      launch(lane, down_weight);
      launch(lane, down);
      lane.wait();
      activation();
      launch(lane, up_weight);
      launch(lane, up);
      lane.wait();
    };
    return composition;
  };
  return job;
}

}  // namespace

std::vector<BenchWorkload> feed_forward_workloads() {
  struct Kind {
    Activation activation;
    bool gated;
    const char* name;
  };
  std::vector<BenchWorkload> list;
  for (const Kind& kind :
       {Kind{Activation::gelu_tanh, false, "gelu"}, Kind{Activation::silu, true, "swiglu"},
        Kind{Activation::gelu_tanh, true, "geglu"}}) {
    const std::string shape = fmt::format("{}x{}x{} {}", kTokens, kHidden, kFfn, kind.name);
    list.push_back({kFeedForwardOp, shape, false, [kind](BenchOperands& operands, DType dtype) {
                      return forward_job(operands,
                                         make_block(operands, dtype, kind.activation, kind.gated));
                    }});
    list.push_back(
        {kFeedForwardBackwardOp, shape, false, [kind](BenchOperands& operands, DType dtype) {
           return backward_job(operands, make_block(operands, dtype, kind.activation, kind.gated));
         }});
  }
  return list;
}

}  // namespace belay
