#pragma once
// Adds up, on the device, what the rounds of a step come to when each is summed over the ranks by
// itself: the target of a pipelined exchange. Costs the memory of the gradients and of a bucket.

#include <memory>

#include "belay/device/device.h"
#include "belay/model/parameter_store.h"
#include "belay/parallel/bucket_reducer.h"

namespace belay {

// A round's place in its step.
struct RoundPlace {
  bool first = true;
  bool last = true;
};

class RoundSum {
 public:
  // No piece has more than `most_elements`. Error(capacity) when memory lacks. `store` must outlive
  // the sum.
  RoundSum(Device& device, const ParameterStore& store, std::int64_t most_elements);
  static std::size_t bytes(const ParameterTable& table, std::int64_t most_elements);

  // Takes the sum over the ranks of a piece of a gradient, in host memory that must stay as it is
  // until the lane has been waited for. Every piece comes once in every round, rounds in order;
  // after the last the gradient in the store is the sum of all rounds.
  void add(Lane& lane, const BucketPiece& piece, const float* values, const RoundPlace& round);

 private:
  const ParameterStore& store_;
  std::unique_ptr<DeviceMemory> sums_;
  std::unique_ptr<DeviceMemory> piece_;
};

}  // namespace belay
