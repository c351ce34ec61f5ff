#include "belay/device/ops_workloads.h"

#include <fmt/core.h>

namespace belay {
namespace {

// Shapes of GPT-2 124M at 4 x 1024 tokens.
constexpr std::int64_t kSeq = 1024;
constexpr std::int64_t kTokens = 4 * kSeq;
constexpr std::int64_t kHidden = 768;
constexpr std::int64_t kHeads = 12;
constexpr std::int64_t kFfn = 4 * kHidden;
constexpr std::int64_t kVocab = 50304;
constexpr std::int64_t kLogitRows = 256;
constexpr std::int64_t kHeadTokens = 1024;
constexpr std::int64_t kHeadBlockRows = 512;
constexpr std::int64_t kWeights = std::int64_t{1} << 24;

template <class Args>
BenchJob job_of(Lane& lane, const Device& device, const Args& args) {
  args.check();
  const OpCall call = make_call(args, select_kernel(device, args));
  BenchJob job{call.kernel, call.cost, call.workspace, {}, {}};
  job.run = [&lane, call] {
    lane.submit(call);
    lane.wait();
  };
  job.plain = [call](const plain::Bench& bench) { return plain::compose(bench, call); };
  return job;
}

NormForwardArgs norm_forward(BenchOperands& operands, DType dtype, NormKind kind) {
  const Shape rows{kTokens, kHidden};
  NormForwardArgs args;
  args.kind = kind;
  args.src = operands.real(dtype, rows);
  args.residual = operands.real(dtype, rows);
  args.weight = operands.real(DType::f32, {kHidden});
  args.sum = operands.real(dtype, rows);
  args.dst = operands.real(dtype, rows);
  args.rstd = operands.real(DType::f32, {kTokens}, 0.5, 2);
  if (kind == NormKind::layer) {
    args.bias = operands.real(DType::f32, {kHidden});
    args.mean = operands.real(DType::f32, {kTokens});
  }
  return args;
}

NormBackwardArgs norm_backward(BenchOperands& operands, DType dtype, NormKind kind) {
  const Shape rows{kTokens, kHidden};
  NormBackwardArgs args;
  args.kind = kind;
  args.src = operands.real(dtype, rows);
  args.weight = operands.real(DType::f32, {kHidden});
  args.rstd = operands.real(DType::f32, {kTokens}, 0.5, 2);
  args.d_dst = operands.real(dtype, rows);
  args.d_residual = operands.real(dtype, rows);
  args.d_src = args.d_residual;
  args.d_weight = operands.real(DType::f32, {kHidden});
  if (kind == NormKind::layer) {
    args.d_bias = operands.real(DType::f32, {kHidden});
    args.mean = operands.real(DType::f32, {kTokens});
  }
  return args;
}

ActivationForwardArgs activation_forward(BenchOperands& operands, DType dtype, Activation kind,
                                         bool gated) {
  const Tensor src = operands.real(dtype, {kTokens, kFfn * (gated ? 2 : 1)}, -4, 4);
  return {kind, gated, src, operands.real(dtype, {kTokens, kFfn})};
}

ActivationBackwardArgs activation_backward(BenchOperands& operands, DType dtype, Activation kind,
                                           bool gated) {
  const Tensor src = operands.real(dtype, {kTokens, kFfn * (gated ? 2 : 1)}, -4, 4);
  return {kind, gated, src, operands.real(dtype, {kTokens, kFfn}), src};
}

CrossEntropyArgs cross_entropy(BenchOperands& operands, DType dtype) {
  CrossEntropyArgs args;
  args.logits = operands.real(dtype, {kLogitRows, kVocab}, -5, 5);
  args.targets = operands.indices(kLogitRows, kVocab);
  args.nll = operands.real(DType::f32, {kLogitRows});
  args.d_logits = args.logits;
  args.scale = 1.0F / static_cast<float>(kTokens);
  return args;
}

AdamwArgs adamw(BenchOperands& operands, DType dtype) {
  AdamwArgs args;
  args.weights = operands.real(DType::f32, {kWeights});
  args.grad = operands.real(DType::f32, {kWeights});
  args.m = operands.real(DType::f32, {kWeights});
  args.v = operands.real(DType::f32, {kWeights}, 0.1, 1);
  if (dtype != DType::f32) args.copy = operands.real(dtype, {kWeights});
  args.lr = 1e-4F;
  args.weight_decay = 0.1F;
  args.correction1 = 0.5F;
  args.correction2 = 0.5F;
  return args;
}

RotaryArgs rotary(BenchOperands& operands, DType dtype) {
  RotaryArgs args;
  args.rows = columns(operands.real(dtype, {kTokens, 3 * kHidden}), 0, 2 * kHidden);
  args.head_dim = kHidden / kHeads;
  args.positions = operands.positions(kTokens, kSeq);
  args.table = operands.real(DType::f32, {kSeq, kHidden / kHeads}, -1, 1);
  return args;
}

EmbeddingForwardArgs embedding_forward(BenchOperands& operands, DType dtype) {
  return {operands.indices(kTokens, kVocab), operands.real(dtype, {kVocab, kHidden}),
          operands.positions(kTokens, kSeq), operands.real(dtype, {kSeq, kHidden}),
          operands.real(dtype, {kTokens, kHidden})};
}

EmbeddingBackwardArgs embedding_backward(BenchOperands& operands, DType dtype) {
  return {operands.indices(kTokens, kVocab), operands.positions(kTokens, kSeq),
          operands.real(dtype, {kTokens, kHidden}), operands.real(DType::f32, {kVocab, kHidden}),
          operands.real(DType::f32, {kSeq, kHidden})};
}

BenchJob head_job(BenchOperands& operands, DType dtype) {
  LinearCrossEntropy args;
  args.hidden = operands.real(dtype, {kHeadTokens, kHidden});
  args.weight = operands.real(dtype, {kVocab, kHidden}, -0.1, 0.1);
  args.targets = operands.indices(kHeadTokens, kVocab);
  args.nll = operands.real(DType::f32, {kHeadTokens});
  args.d_hidden = operands.real(dtype, {kHeadTokens, kHidden});
  args.d_weight = operands.real(DType::f32, {kVocab, kHidden});
  args.scale = 1.0F / static_cast<float>(kTokens);
  args.block_rows = kHeadBlockRows;
  // A block of logits, and in 16 bits its gradient beside it.
  const auto block = static_cast<std::size_t>(kHeadBlockRows * kVocab);
  const std::size_t bytes = block * (dtype == DType::f32 ? 4 : 4 + size_of(dtype));
  const Tensor memory = operands.bytes(bytes);
  BenchJob job{"by blocks", args.cost(), bytes, {}, {}};
  job.run = [args, memory, &lane = operands.lane()] {
    Arena scratch("blocks of logits", memory.data, memory.bytes());
    linear_cross_entropy(lane, scratch, args);
    lane.wait();
  };
  job.plain = [args](const plain::Bench& bench) { return plain::compose(bench, args); };
  return job;
}

}  // namespace

std::vector<BenchWorkload> bench_workloads(const Device& device) {
  const std::string hidden = fmt::format("{}x{}", kTokens, kHidden);
  const std::string ffn = fmt::format("{}x{}", kTokens, kFfn);
  const std::string vector = fmt::format("{}", kWeights);
  const auto with = [&device](auto build) {
    return [&device, build](BenchOperands& operands, DType dtype) {
      return job_of(operands.lane(), device, build(operands, dtype));
    };
  };
  std::vector<BenchWorkload> list;
  for (const NormKind kind : {NormKind::layer, NormKind::rms}) {
    const std::string name = kind == NormKind::layer ? " layer+residual" : " rms+residual";
    list.push_back({NormForwardArgs::kName, hidden + name, false,
                    with([=](BenchOperands& o, DType d) { return norm_forward(o, d, kind); })});
    list.push_back({NormBackwardArgs::kName, hidden + name, false,
                    with([=](BenchOperands& o, DType d) { return norm_backward(o, d, kind); })});
  }
  struct Act {
    Activation kind;
    bool gated;
    const char* name;
  };
  for (const Act& act :
       {Act{Activation::gelu_tanh, false, " gelu_tanh"},
        Act{Activation::gelu_erf, false, " gelu_erf"}, Act{Activation::silu, true, " swiglu"},
        Act{Activation::gelu_tanh, true, " geglu"}}) {
    list.push_back(
        {ActivationForwardArgs::kName, ffn + act.name, false, with([=](BenchOperands& o, DType d) {
           return activation_forward(o, d, act.kind, act.gated);
         })});
    list.push_back({ActivationBackwardArgs::kName, ffn + act.name + " in place", false,
                    with([=](BenchOperands& o, DType d) {
                      return activation_backward(o, d, act.kind, act.gated);
                    })});
  }
  for (BenchWorkload& workload : feed_forward_workloads()) list.push_back(std::move(workload));
  list.push_back({CrossEntropyArgs::kName, fmt::format("{}x{} in place", kLogitRows, kVocab), false,
                  with(cross_entropy)});
  list.push_back({AdamwArgs::kName, vector, false, with(adamw)});
  list.push_back(
      {SumOfSquaresArgs::kName, vector, true, with([](BenchOperands& o, DType) {
         return SumOfSquaresArgs{o.real(DType::f32, {kWeights}), o.real(DType::f64, {1})};
       })});
  list.push_back(
      {EmbeddingForwardArgs::kName, hidden + " positions", false, with(embedding_forward)});
  list.push_back(
      {EmbeddingBackwardArgs::kName, hidden + " positions", false, with(embedding_backward)});
  for (BenchWorkload& workload : attention_workloads(device)) list.push_back(std::move(workload));
  list.push_back({kHeadOp,
                  fmt::format("{}x{}x{} by {}", kHeadTokens, kVocab, kHidden, kHeadBlockRows),
                  false, head_job});
  list.push_back(
      {RotaryArgs::kName, fmt::format("{}x{}", kTokens, 2 * kHidden), false, with(rotary)});
  list.push_back(
      {DropoutArgs::kName, hidden + " in place", false, with([](BenchOperands& o, DType d) {
         const Tensor x = o.real(d, {kTokens, kHidden});
         return DropoutArgs{x, x, 0.1F, {1, 2, 3}, 0};
       })});
  list.push_back({ColumnSumArgs::kName, ffn, false, with([](BenchOperands& o, DType d) {
                    return ColumnSumArgs{o.real(d, {kTokens, kFfn}), o.real(DType::f32, {kFfn})};
                  })});
  list.push_back({AddArgs::kName, hidden, false, with([](BenchOperands& o, DType d) {
                    const Shape shape{kTokens, kHidden};
                    return AddArgs{o.real(d, shape), o.real(d, shape), o.real(d, shape)};
                  })});
  list.push_back({CastArgs::kName, vector + " from f32", false, with([](BenchOperands& o, DType d) {
                    return CastArgs{o.real(DType::f32, {kWeights}), o.real(d, {kWeights})};
                  })});
  list.push_back({FillArgs::kName, vector, false, with([](BenchOperands& o, DType d) {
                    return FillArgs{o.real(d, {kWeights}), 0.0};
                  })});
  list.push_back(
      {SumArgs::kName, fmt::format("{}", kTokens), true, with([](BenchOperands& o, DType) {
         return SumArgs{o.real(DType::f32, {kTokens}), o.real(DType::f64, {1})};
       })});
  return list;
}

}  // namespace belay
