#pragma once
// Adds up the gradients of a step's rounds, one micro-batch of every rank each, in an order that
// does not depend on how the micro-batches are spread over ranks: as a balanced binary tree over
// their numbers, like the order-stable sums of comm/algorithm.h over ranks. With a power of two of
// ranks a round is a subtree, so any such number of ranks gives the bits of one.
//
// A binary counter holds the subtrees that wait for their right-hand side: with `rounds` rounds,
// log2(rounds) + 1 sets of gradients.

#include <memory>
#include <vector>

#include "belay/model/parameter_store.h"

namespace belay {

class StableSum {
 public:
  // `gradients`: f32 tensors, all or the part that this rank keeps. Error(capacity) when memory
  // lacks.
  StableSum(Device& device, const std::vector<Tensor>& gradients, std::int64_t rounds);
  // With so many elements in all.
  static std::size_t bytes(std::int64_t elements, std::int64_t rounds);

  // Takes the gradients of a round, and leaves zeros.
  void add(Lane& lane);
  // The gradients are the sum of all rounds since the last finish().
  void finish(Lane& lane);

 private:
  [[nodiscard]] Tensor level(std::size_t number, std::size_t gradient) const;

  std::vector<Tensor> gradients_;      // [elements] each
  std::vector<std::int64_t> offsets_;  // of each within a level
  std::vector<std::unique_ptr<DeviceMemory>> levels_;
  std::uint64_t rounds_ = 0;  // added so far
};

// The same for numbers in host memory.
class StableScalar {
 public:
  void add(double value);
  // Returns the sum and starts again.
  double finish();

 private:
  std::vector<double> levels_ = std::vector<double>(64);
  std::uint64_t rounds_ = 0;
};

}  // namespace belay
