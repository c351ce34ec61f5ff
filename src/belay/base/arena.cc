#include "belay/base/arena.h"

#include <algorithm>

#include "belay/base/error.h"

namespace belay {

Tensor Arena::allocate(DType dtype, const Shape& shape) {
  const std::size_t bytes = static_cast<std::size_t>(shape.elements()) * size_of(dtype);
  const std::size_t padded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  if (padded > capacity_ - used_) {
    fail(ExitCode::capacity, "arena '{}' is full: {} bytes asked, {} of {} in use", name_, padded,
         used_, capacity_);
  }
  Tensor tensor{base_ + used_, dtype, shape};
  used_ += padded;
  peak_ = std::max(peak_, used_);
  return tensor;
}

void Arena::release(std::size_t mark) {
  BELAY_CHECK(mark <= used_);
  used_ = mark;
}

}  // namespace belay
