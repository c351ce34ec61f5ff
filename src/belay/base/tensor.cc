#include "belay/base/tensor.h"

#include <fmt/core.h>

namespace belay {

std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (int axis = 0; axis < shape.rank(); ++axis) {
    text += fmt::format("{}{}", axis == 0 ? "" : ", ", shape[axis]);
  }
  return text + "]";
}

Tensor Tensor::rows(std::int64_t begin, std::int64_t end) const {
  BELAY_CHECK(shape.rank() >= 1 && begin >= 0 && begin <= end && end <= shape[0]);
  Shape part{end - begin};
  std::int64_t row_elements = 1;
  for (int axis = 1; axis < shape.rank(); ++axis) {
    part.push_back(shape[axis]);
    row_elements *= shape[axis];
  }
  // A tensor without memory yet (operands being counted) has rows without memory.
  auto* base = static_cast<std::byte*>(data);
  if (base == nullptr) return {nullptr, dtype, part};
  return {base + static_cast<std::size_t>(begin * row_elements) * size_of(dtype), dtype, part};
}

Rows columns(const Tensor& matrix, std::int64_t begin, std::int64_t end) {
  BELAY_CHECK(matrix.shape.rank() == 2 && begin >= 0 && begin <= end && end <= matrix.dim(1));
  auto* base = static_cast<std::byte*>(matrix.data);
  if (base == nullptr) return {nullptr, matrix.dtype, matrix.dim(0), end - begin, matrix.dim(1)};
  return {base + static_cast<std::size_t>(begin) * size_of(matrix.dtype), matrix.dtype,
          matrix.dim(0), end - begin, matrix.dim(1)};
}

}  // namespace belay
