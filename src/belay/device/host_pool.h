#pragma once
// For tests: operands in host memory, aligned as the engine's own.

#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <vector>

#include "belay/base/arena.h"
#include "belay/device/reference/element.h"

namespace belay {

class HostPool {
 public:
  Tensor allocate(DType dtype, const Shape& shape) {
    const std::size_t bytes = static_cast<std::size_t>(shape.elements()) * size_of(dtype);
    blocks_.emplace_back(
        static_cast<std::byte*>(::operator new (bytes + kAlignment, std::align_val_t{kAlignment})));
    // A result that a kernel forgets to write is a NaN (0xffff is one in bf16 too).
    std::memset(blocks_.back().get(), 0xff, bytes);
    return {blocks_.back().get(), dtype, shape};
  }

  // Holding these values, rounded to the dtype.
  Tensor of(DType dtype, const Shape& shape, std::span<const double> values) {
    const Tensor tensor = allocate(dtype, shape);
    BELAY_CHECK(static_cast<std::size_t>(tensor.elements()) == values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      store(tensor, static_cast<std::int64_t>(i), values[i]);
    }
    return tensor;
  }
  Tensor filled(DType dtype, const Shape& shape, double value) {
    const Tensor tensor = allocate(dtype, shape);
    for (std::int64_t i = 0; i < tensor.elements(); ++i) store(tensor, i, value);
    return tensor;
  }

 private:
  struct Free {
    void operator()(std::byte* block) const {
      ::operator delete (block, std::align_val_t{kAlignment});
    }
  };
  std::vector<std::unique_ptr<std::byte, Free>> blocks_;
};

}  // namespace belay
