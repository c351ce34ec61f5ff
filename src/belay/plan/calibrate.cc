#include "belay/plan/calibrate.h"

#include <algorithm>
#include <chrono>

namespace belay {
namespace {

constexpr int kSamples = 4;  // timed runs of each group; the first warms up

std::string shape_of(const OpCall& call) {
  return call.op == MatmulArgs::kName ? MatmulKey::of(call.as<MatmulArgs>()).text() : "";
}

bool same_group(const PlannedOp& op, const OpCall& call, const std::string& shape) {
  return op.op == call.op && op.kernel == call.kernel && op.tag == call.tag &&
         op.flops == call.cost.flops && op.bytes == call.cost.bytes && op.shape == shape;
}

std::size_t group_of(std::span<const PlannedOp> ops, const OpCall& call) {
  const std::string shape = shape_of(call);
  const auto found = std::find_if(ops.begin(), ops.end(),
                                  [&](const PlannedOp& op) { return same_group(op, call, shape); });
  return static_cast<std::size_t>(found - ops.begin());
}

}  // namespace

std::vector<PlannedOp> summarise(std::span<const OpCall> calls, std::int64_t accumulation) {
  std::vector<PlannedOp> ops;
  for (const OpCall& call : calls) {
    const std::size_t group = group_of(ops, call);
    if (group == ops.size()) {
      ops.push_back({std::string(call.op), std::string(call.kernel), std::string(call.tag),
                     shape_of(call), 0, call.cost.flops, call.cost.bytes, 0});
    }
    ops[group].calls += call.tag == "optimizer" ? 1 : accumulation;
  }
  return ops;
}

void calibrate(Lane& lane, std::span<const OpCall> calls, std::vector<PlannedOp>& ops) {
  std::vector<std::vector<double>> samples(ops.size());
  bool more = true;
  for (int round = 0; round < kSamples && more; ++round) {
    more = false;
    for (const OpCall& call : calls) {
      const std::size_t group = group_of(ops, call);
      if (samples[group].size() >= kSamples) continue;
      const auto begin = std::chrono::steady_clock::now();
      lane.submit(call);
      lane.wait();
      const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
      samples[group].push_back(taken.count());
      more = more || samples[group].size() < kSamples;
    }
  }
  for (std::size_t group = 0; group < ops.size(); ++group) {
    std::vector<double>& times = samples[group];
    times.erase(times.begin());
    std::sort(times.begin(), times.end());
    ops[group].seconds = times[times.size() / 2];
  }
}

std::vector<MatmulKey> matmul_keys(std::span<const OpCall> calls) {
  std::vector<MatmulKey> keys;
  for (const OpCall& call : calls) {
    if (call.op != MatmulArgs::kName) continue;
    const MatmulKey key = MatmulKey::of(call.as<MatmulArgs>());
    if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
  }
  return keys;
}

}  // namespace belay
