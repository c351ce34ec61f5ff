#pragma once
// The operator calls that `belay bench ops` times: those of GPT-2 124M at 4 x 1024 tokens, each
// with its composition of plain operators.

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "belay/device/device.h"
#include "belay/device/plain/plain.h"

namespace belay {

// Makes operands with plausible values in device memory.
class BenchOperands {
 public:
  BenchOperands(Lane& lane, Arena& arena) : lane_(lane), arena_(arena) {}

  [[nodiscard]] Lane& lane() const { return lane_; }
  // Uniform in [low, high).
  Tensor real(DType dtype, const Shape& shape, double low = -2, double high = 2);
  // i32 in [0, limit).
  Tensor indices(std::int64_t count, std::int64_t limit);
  // i32: 0, 1, ..., length - 1, again and again.
  Tensor positions(std::int64_t count, std::int64_t length);
  // i32: the first token of each token's document, where rows of `seq` hold documents of `length`.
  Tensor document_starts(std::int64_t count, std::int64_t seq, std::int64_t length);
  // Memory without values.
  Tensor bytes(std::size_t count);

 private:
  Tensor whole_numbers(std::int64_t count, const std::function<std::int64_t(std::int64_t)>& value);
  // A block of draws, repeated: enough variety for timing, and quick to make.
  Tensor filled(DType dtype, const Shape& shape, const std::function<double(double)>& map);

  Lane& lane_;
  Arena& arena_;
};

// One fused operator on operands of its own, ready to run as often as wanted.
struct BenchJob {
  std::string_view kernel;
  Cost cost;
  std::size_t scratch_bytes = 0;  // of intermediate results
  std::function<void()> run;      // and wait
  // The same mathematics on the same operands; a composition whose run is empty where the operator
  // is a plain one itself.
  std::function<plain::Composition(const plain::Bench&)> plain;
};

struct BenchWorkload {
  std::string_view op;
  std::string shape;
  bool f32_only = false;
  std::function<BenchJob(BenchOperands&, DType)> prepare;
};

// The output projection with its loss, which is no operator call but several.
inline constexpr std::string_view kHeadOp = "head";
// Likewise the feed-forward block.
inline constexpr std::string_view kFeedForwardOp = "feed_forward";
inline constexpr std::string_view kFeedForwardBackwardOp = "feed_forward_backward";

std::vector<BenchWorkload> bench_workloads(const Device& device);
std::vector<BenchWorkload> feed_forward_workloads();
std::vector<BenchWorkload> attention_workloads(const Device& device);

}  // namespace belay
