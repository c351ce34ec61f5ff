#include "belay/device/ops_bench.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "belay/base/arena.h"
#include "belay/base/philox.h"
#include "belay/device/device.h"
#include "belay/device/reference/element.h"
#include "belay/machine/busy_clock.h"

namespace belay {
namespace {

// Calls go round operands of at least this many bytes together, so that none is still cached.
constexpr std::size_t kRingBytes = std::size_t{256} << 20;
constexpr std::size_t kArenaBytes = std::size_t{640} << 20;
constexpr std::size_t kMaxSets = 64;
constexpr int kMinCalls = 12;
constexpr double kSecondsPerOp = 0.3;

// Shapes of GPT-2 124M at 4 x 1024 tokens.
constexpr std::int64_t kBatch = 4;
constexpr std::int64_t kSeq = 1024;
constexpr std::int64_t kTokens = kBatch * kSeq;
constexpr std::int64_t kHidden = 768;
constexpr std::int64_t kHeads = 12;
constexpr std::int64_t kFfn = 4 * kHidden;
constexpr std::int64_t kVocab = 50304;
constexpr std::int64_t kLogitRows = 256;
constexpr std::int64_t kWeights = std::int64_t{1} << 24;

// Operands with plausible values, in device memory.
class Operands {
 public:
  Operands(Lane& lane, Arena& arena) : lane_(lane), arena_(arena) {}

  Tensor real(DType dtype, const Shape& shape, double low = -2, double high = 2) {
    return filled(dtype, shape, [=](double draw) { return low + (high - low) * draw; });
  }
  Tensor indices(std::int64_t count, std::int64_t limit) {
    return filled(DType::i32, {count},
                  [=](double draw) { return std::floor(draw * static_cast<double>(limit)); });
  }
  // 0, 1, ..., seq - 1, again and again.
  Tensor positions(std::int64_t count) {
    const Tensor tensor = arena_.allocate(DType::i32, {count});
    std::vector<std::int32_t> values(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<std::int32_t>(i % static_cast<std::size_t>(kSeq));
    }
    lane_.copy_in(tensor.data, values.data(), tensor.bytes());
    lane_.wait();
    return tensor;
  }

 private:
  // A block of draws, repeated: enough variety for timing, and quick to make.
  template <class Map>
  Tensor filled(DType dtype, const Shape& shape, const Map& map) {
    constexpr std::int64_t kBlock = 4099;
    const Tensor tensor = arena_.allocate(dtype, shape);
    const std::int64_t count = std::min(kBlock, shape.elements());
    std::vector<std::byte> block(static_cast<std::size_t>(count) * size_of(dtype));
    for (std::int64_t i = 0; i < count; ++i) {
      const PhiloxBlock words = random_block({1, 2, 3}, static_cast<std::uint64_t>(i));
      store(block.data(), dtype, i, map(static_cast<double>(uniform(words[0]))));
    }
    for (std::size_t done = 0; done < tensor.bytes(); done += block.size()) {
      lane_.copy_in(tensor.as<std::byte>() + done, block.data(),
                    std::min(block.size(), tensor.bytes() - done));
    }
    lane_.wait();
    return tensor;
  }

  Lane& lane_;
  Arena& arena_;
};

struct Workload {
  std::string_view op;
  std::string shape;
  bool f32_only = false;
  std::function<OpCall(Operands&, DType)> prepare;
};

template <class Args>
OpCall call_of(const Device& device, const Args& args) {
  args.check();
  return make_call(args, select_kernel(device, args));
}

NormForwardArgs norm_forward(Operands& operands, DType dtype, NormKind kind) {
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

NormBackwardArgs norm_backward(Operands& operands, DType dtype, NormKind kind) {
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

ActivationForwardArgs activation_forward(Operands& operands, DType dtype, Activation kind,
                                         bool gated) {
  const Tensor src = operands.real(dtype, {kTokens, kFfn * (gated ? 2 : 1)}, -4, 4);
  return {kind, gated, src, operands.real(dtype, {kTokens, kFfn})};
}

ActivationBackwardArgs activation_backward(Operands& operands, DType dtype, Activation kind,
                                           bool gated) {
  const Tensor src = operands.real(dtype, {kTokens, kFfn * (gated ? 2 : 1)}, -4, 4);
  return {kind, gated, src, operands.real(dtype, {kTokens, kFfn}), src};
}

CrossEntropyArgs cross_entropy(Operands& operands, DType dtype) {
  CrossEntropyArgs args;
  args.logits = operands.real(dtype, {kLogitRows, kVocab}, -5, 5);
  args.targets = operands.indices(kLogitRows, kVocab);
  args.nll = operands.real(DType::f32, {kLogitRows});
  args.d_logits = args.logits;
  args.scale = 1.0F / static_cast<float>(kTokens);
  return args;
}

AdamwArgs adamw(Operands& operands, DType dtype) {
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

AttentionShape attention_shape() {
  return {kBatch, kSeq, kSeq, kHeads, kHeads, kHidden / kHeads, 0.125F};
}

AttentionForwardArgs attention_forward(Operands& operands, DType dtype) {
  const Tensor qkv = operands.real(dtype, {kTokens, 3 * kHidden});
  AttentionForwardArgs args;
  args.shape = attention_shape();
  args.q = columns(qkv, 0, kHidden);
  args.k = columns(qkv, kHidden, 2 * kHidden);
  args.v = columns(qkv, 2 * kHidden, 3 * kHidden);
  args.dst = operands.real(dtype, {kTokens, kHidden});
  args.lse = operands.real(DType::f32, {kBatch, kHeads, kSeq}, 5, 6);
  return args;
}

AttentionBackwardArgs attention_backward(Operands& operands, DType dtype) {
  const AttentionForwardArgs forward = attention_forward(operands, dtype);
  const Tensor d_qkv = operands.real(dtype, {kTokens, 3 * kHidden});
  AttentionBackwardArgs args;
  args.shape = forward.shape;
  args.q = forward.q;
  args.k = forward.k;
  args.v = forward.v;
  args.dst = forward.dst;
  args.lse = forward.lse;
  args.d_dst = operands.real(dtype, {kTokens, kHidden});
  args.d_q = columns(d_qkv, 0, kHidden);
  args.d_k = columns(d_qkv, kHidden, 2 * kHidden);
  args.d_v = columns(d_qkv, 2 * kHidden, 3 * kHidden);
  return args;
}

RotaryArgs rotary(Operands& operands, DType dtype) {
  RotaryArgs args;
  args.rows = columns(operands.real(dtype, {kTokens, 3 * kHidden}), 0, 2 * kHidden);
  args.head_dim = kHidden / kHeads;
  args.positions = operands.positions(kTokens);
  args.table = operands.real(DType::f32, {kSeq, kHidden / kHeads}, -1, 1);
  return args;
}

EmbeddingForwardArgs embedding_forward(Operands& operands, DType dtype) {
  return {operands.indices(kTokens, kVocab), operands.real(dtype, {kVocab, kHidden}),
          operands.positions(kTokens), operands.real(dtype, {kSeq, kHidden}),
          operands.real(dtype, {kTokens, kHidden})};
}

EmbeddingBackwardArgs embedding_backward(Operands& operands, DType dtype) {
  return {operands.indices(kTokens, kVocab), operands.positions(kTokens),
          operands.real(dtype, {kTokens, kHidden}), operands.real(DType::f32, {kVocab, kHidden}),
          operands.real(DType::f32, {kSeq, kHidden})};
}

std::vector<Workload> workloads(const Device& device) {
  const std::string hidden = fmt::format("{}x{}", kTokens, kHidden);
  const std::string ffn = fmt::format("{}x{}", kTokens, kFfn);
  const std::string vector = fmt::format("{}", kWeights);
  const auto with = [&device](auto build) {
    return [&device, build](Operands& operands, DType dtype) {
      return call_of(device, build(operands, dtype));
    };
  };
  std::vector<Workload> list;
  for (const NormKind kind : {NormKind::layer, NormKind::rms}) {
    const std::string name = kind == NormKind::layer ? " layer+residual" : " rms+residual";
    list.push_back({NormForwardArgs::kName, hidden + name, false,
                    with([=](Operands& o, DType d) { return norm_forward(o, d, kind); })});
    list.push_back({NormBackwardArgs::kName, hidden + name, false,
                    with([=](Operands& o, DType d) { return norm_backward(o, d, kind); })});
  }
  struct Act {
    Activation kind;
    bool gated;
    const char* name;
  };
  for (const Act& act :
       {Act{Activation::gelu_tanh, false, " gelu_tanh"},
        Act{Activation::gelu_erf, false, " gelu_erf"}, Act{Activation::silu, true, " swiglu"}}) {
    list.push_back(
        {ActivationForwardArgs::kName, ffn + act.name, false, with([=](Operands& o, DType d) {
           return activation_forward(o, d, act.kind, act.gated);
         })});
    list.push_back({ActivationBackwardArgs::kName, ffn + act.name + " in place", false,
                    with([=](Operands& o, DType d) {
                      return activation_backward(o, d, act.kind, act.gated);
                    })});
  }
  list.push_back({CrossEntropyArgs::kName, fmt::format("{}x{} in place", kLogitRows, kVocab), false,
                  with(cross_entropy)});
  list.push_back({AdamwArgs::kName, vector, false, with(adamw)});
  list.push_back(
      {SumOfSquaresArgs::kName, vector, true, with([](Operands& o, DType) {
         return SumOfSquaresArgs{o.real(DType::f32, {kWeights}), o.real(DType::f64, {1})};
       })});
  list.push_back(
      {EmbeddingForwardArgs::kName, hidden + " positions", false, with(embedding_forward)});
  list.push_back(
      {EmbeddingBackwardArgs::kName, hidden + " positions", false, with(embedding_backward)});
  list.push_back({AttentionForwardArgs::kName,
                  fmt::format("{}x{} {}x{}", kBatch, kSeq, kHeads, kHidden / kHeads), false,
                  with(attention_forward)});
  list.push_back({AttentionBackwardArgs::kName,
                  fmt::format("{}x{} {}x{}", kBatch, kSeq, kHeads, kHidden / kHeads), false,
                  with(attention_backward)});
  list.push_back(
      {RotaryArgs::kName, fmt::format("{}x{}", kTokens, 2 * kHidden), false, with(rotary)});
  list.push_back({DropoutArgs::kName, hidden + " in place", false, with([](Operands& o, DType d) {
                    const Tensor x = o.real(d, {kTokens, kHidden});
                    return DropoutArgs{x, x, 0.1F, {1, 2, 3}, 0};
                  })});
  list.push_back({ColumnSumArgs::kName, ffn, false, with([](Operands& o, DType d) {
                    return ColumnSumArgs{o.real(d, {kTokens, kFfn}), o.real(DType::f32, {kFfn})};
                  })});
  list.push_back({AddArgs::kName, hidden, false, with([](Operands& o, DType d) {
                    const Shape shape{kTokens, kHidden};
                    return AddArgs{o.real(d, shape), o.real(d, shape), o.real(d, shape)};
                  })});
  list.push_back({CastArgs::kName, vector + " from f32", false, with([](Operands& o, DType d) {
                    return CastArgs{o.real(DType::f32, {kWeights}), o.real(d, {kWeights})};
                  })});
  list.push_back({FillArgs::kName, vector, false, with([](Operands& o, DType d) {
                    return FillArgs{o.real(d, {kWeights}), 0.0};
                  })});
  list.push_back({SumArgs::kName, fmt::format("{}", kTokens), true, with([](Operands& o, DType) {
                    return SumArgs{o.real(DType::f32, {kTokens}), o.real(DType::f64, {1})};
                  })});
  return list;
}

// Every call of the ring, at least kMinCalls times and kSecondsPerOp long.
double best_seconds(Lane& lane, const std::vector<OpCall>& ring) {
  for (const OpCall& call : ring) lane.submit(call);
  lane.wait();
  double best = std::numeric_limits<double>::infinity();
  const double begin = busy_seconds();
  for (int i = 0; i < kMinCalls || busy_seconds() - begin < kSecondsPerOp; ++i) {
    const double start = busy_seconds();
    lane.submit(ring[static_cast<std::size_t>(i) % ring.size()]);
    lane.wait();
    best = std::min(best, busy_seconds() - start);
  }
  return best;
}

OpTiming time_workload(const Workload& workload, DType dtype, Lane& lane, Arena& arena,
                       const MachineRates& rates) {
  const ArenaScope scope(arena);
  Operands operands(lane, arena);
  std::vector<OpCall> ring;
  const std::size_t start = arena.mark();
  std::size_t set_bytes = 0;
  do {
    ring.push_back(workload.prepare(operands, dtype));
    if (set_bytes == 0) set_bytes = arena.mark() - start;
  } while (arena.mark() - start < kRingBytes && ring.size() < kMaxSets &&
           arena.mark() + set_bytes <= arena.capacity());
  OpTiming timing;
  timing.op = workload.op;
  timing.shape = workload.shape;
  timing.dtype = dtype;
  timing.kernel = ring.front().kernel;
  timing.cost = ring.front().cost;
  timing.seconds = best_seconds(lane, ring);
  const double flops_per_s = dtype == DType::bf16 && rates.gemm_bf16_flops_per_s > 0
                                 ? rates.gemm_bf16_flops_per_s
                                 : rates.gemm_f32_flops_per_s;
  const double memory = timing.cost.bytes / rates.memory_bytes_per_s;
  const double compute = timing.cost.flops / flops_per_s;
  timing.memory_bound = memory >= compute;
  timing.bound_seconds = std::max(memory, compute);
  return timing;
}

}  // namespace

std::vector<std::string_view> benched_ops() {
  const auto device = make_device("cpu");
  std::vector<std::string_view> names;
  for (const Workload& workload : workloads(*device)) {
    if (std::find(names.begin(), names.end(), workload.op) == names.end()) {
      names.push_back(workload.op);
    }
  }
  return names;
}

void bench_ops(std::string_view only, const std::vector<DType>& dtypes, const MachineRates& rates,
               const std::function<void(const OpTiming&)>& report) {
  const auto device = make_device("cpu");
  const auto lane = device->create_lane();
  const auto memory = device->allocate(kArenaBytes, "operator benchmark");
  Arena arena("operator benchmark", memory->address(), kArenaBytes);
  for (const Workload& workload : workloads(*device)) {
    if (!only.empty() && workload.op != only) continue;
    for (const DType dtype : dtypes) {
      if (workload.f32_only && dtype != DType::f32) continue;
      report(time_workload(workload, dtype, *lane, arena, rates));
    }
  }
}

}  // namespace belay
