#pragma once
// For the compositions: intermediate results that are counted as they are allocated.

#include <memory>

#include "belay/device/plain/passes.h"
#include "belay/device/plain/plain.h"

namespace belay::plain {

class Workbench {
 public:
  Workbench(const Bench& bench, Composition& composition)
      : bench_(bench), composition_(composition) {}

  // Lives from the forward to the backward pass.
  Tensor keep(DType dtype, const Shape& shape) {
    return counted(dtype, shape, composition_.kept_bytes);
  }
  // Lives while the composition runs.
  Tensor scratch(DType dtype, const Shape& shape) {
    return counted(dtype, shape, composition_.scratch_bytes);
  }

 private:
  Tensor counted(DType dtype, const Shape& shape, std::size_t& bytes) {
    const Tensor tensor = bench_.arena.allocate(dtype, shape);
    bytes += tensor.bytes();
    return tensor;
  }

  const Bench& bench_;
  Composition& composition_;
};

}  // namespace belay::plain
