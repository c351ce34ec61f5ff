#pragma once
// Elements of any dtype read and written as double.

#include <cmath>
#include <limits>

#include "belay/base/tensor.h"
#include "belay/device/ops/inside.h"

namespace belay {

// Rounded once. On the way through f32 an inexact value gets an odd last bit ("round to odd"), so
// that it cannot fall on a midpoint of two f16.
inline F16 to_f16(double value) {
  const auto nearest = static_cast<float>(value);
  const bool odd = (std::bit_cast<std::uint32_t>(nearest) & 1U) != 0;
  if (odd || std::isnan(value) || static_cast<double>(nearest) == value) return to_f16(nearest);
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const bool above = value > static_cast<double>(nearest);
  return to_f16(std::nextafter(nearest, above ? kInfinity : -kInfinity));
}

// kept_inside() for the reference kernels: nothing is rounded when the operands are f64.
inline double kept_inside(double value, DType storage, Inside inside) {
  if (inside == Inside::full || size_of(storage) != 2) return value;
  return static_cast<double>(kept_inside(static_cast<float>(value), storage, inside));
}

inline double load(const void* data, DType dtype, std::int64_t index) {
  switch (dtype) {
    case DType::f64:
      return static_cast<const double*>(data)[index];
    case DType::f32:
      return static_cast<double>(static_cast<const float*>(data)[index]);
    case DType::bf16:
      return static_cast<double>(to_float(static_cast<const Bf16*>(data)[index]));
    case DType::f16:
      return static_cast<double>(to_float(static_cast<const F16*>(data)[index]));
    case DType::i32:
      return static_cast<double>(static_cast<const std::int32_t*>(data)[index]);
    default:
      BELAY_CHECK(false);
  }
}

inline void store(void* data, DType dtype, std::int64_t index, double value) {
  switch (dtype) {
    case DType::f64:
      static_cast<double*>(data)[index] = value;
      return;
    case DType::f32:
      static_cast<float*>(data)[index] = static_cast<float>(value);
      return;
    case DType::bf16:
      static_cast<Bf16*>(data)[index] = to_bf16(static_cast<float>(value));
      return;
    case DType::f16:
      static_cast<F16*>(data)[index] = to_f16(value);
      return;
    case DType::i32:
      static_cast<std::int32_t*>(data)[index] = static_cast<std::int32_t>(value);
      return;
    default:
      BELAY_CHECK(false);
  }
}

inline double load(const Tensor& tensor, std::int64_t index) {
  return load(tensor.data, tensor.dtype, index);
}
inline void store(const Tensor& tensor, std::int64_t index, double value) {
  store(tensor.data, tensor.dtype, index, value);
}
inline double load(const Rows& rows, std::int64_t row, std::int64_t column) {
  return load(rows.data, rows.dtype, row * rows.stride + column);
}
inline void store(const Rows& rows, std::int64_t row, std::int64_t column, double value) {
  store(rows.data, rows.dtype, row * rows.stride + column, value);
}

}  // namespace belay
