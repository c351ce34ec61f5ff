#pragma once
// Tensor: a view of contiguous row-major memory (last dimension fastest). It owns nothing and does
// not know which device the memory lives on; host code may dereference it only when it points at
// host memory.

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <type_traits>

#include "belay/base/check.h"
#include "belay/base/dtype.h"

namespace belay {

inline constexpr int kMaxRank = 4;

class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<std::int64_t> dims) {
    BELAY_CHECK(dims.size() <= kMaxRank);
    for (const std::int64_t dim : dims) dims_[static_cast<std::size_t>(rank_++)] = dim;
  }
  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] std::int64_t operator[](int axis) const {
    BELAY_CHECK(axis >= 0 && axis < rank_);
    return dims_[static_cast<std::size_t>(axis)];
  }
  // Product of the dimensions; 1 for rank 0.
  [[nodiscard]] std::int64_t elements() const {
    std::int64_t product = 1;
    for (int axis = 0; axis < rank_; ++axis) product *= dims_[static_cast<std::size_t>(axis)];
    return product;
  }
  void push_back(std::int64_t dim) {
    BELAY_CHECK(rank_ < kMaxRank);
    dims_[static_cast<std::size_t>(rank_++)] = dim;
  }
  friend bool operator==(const Shape&, const Shape&) = default;

 private:
  std::array<std::int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

std::string to_string(const Shape& shape);  // "[2, 3]"

struct Tensor {
  void* data = nullptr;
  DType dtype = DType::f32;
  Shape shape;

  [[nodiscard]] bool empty() const { return data == nullptr; }
  [[nodiscard]] std::int64_t elements() const { return shape.elements(); }
  [[nodiscard]] std::int64_t dim(int axis) const { return shape[axis]; }
  [[nodiscard]] std::size_t bytes() const {
    return static_cast<std::size_t>(elements()) * size_of(dtype);
  }
  template <class T>
  [[nodiscard]] T* as() const {
    return static_cast<T*>(data);
  }
  // The same memory under another shape with as many elements.
  [[nodiscard]] Tensor reshaped(const Shape& other) const {
    BELAY_CHECK(other.elements() == elements());
    return {data, dtype, other};
  }
  // Rows [begin, end) of the first dimension.
  [[nodiscard]] Tensor rows(std::int64_t begin, std::int64_t end) const;
};

// A strided matrix: `rows` rows of `width` elements, `stride` elements apart. Attention reads q, k
// and v out of one fused buffer through these.
struct Rows {
  void* data = nullptr;
  DType dtype = DType::f32;
  std::int64_t rows = 0;
  std::int64_t width = 0;
  std::int64_t stride = 0;

  template <class T>
  [[nodiscard]] T* row(std::int64_t index) const {
    return static_cast<T*>(data) + index * stride;
  }
};

// Columns [begin, end) of a rank-2 tensor.
Rows columns(const Tensor& matrix, std::int64_t begin, std::int64_t end);

}  // namespace belay
