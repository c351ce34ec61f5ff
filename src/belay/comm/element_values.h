#pragma once
// Elements of any type as doubles, for tests and benchmarks.

#include <cstdint>

#include "belay/base/dtype.h"

namespace belay::comm {

inline double get(const void* data, DType dtype, std::int64_t i) {
  switch (dtype) {
    case DType::f64:
      return static_cast<const double*>(data)[i];
    case DType::i32:
      return static_cast<const std::int32_t*>(data)[i];
    case DType::bf16:
      return static_cast<double>(to_float(static_cast<const Bf16*>(data)[i]));
    case DType::f16:
      return static_cast<double>(to_float(static_cast<const F16*>(data)[i]));
    default:
      return static_cast<double>(static_cast<const float*>(data)[i]);
  }
}

inline void set(void* data, DType dtype, std::int64_t i, double value) {
  switch (dtype) {
    case DType::f64:
      static_cast<double*>(data)[i] = value;
      return;
    case DType::i32:
      static_cast<std::int32_t*>(data)[i] = static_cast<std::int32_t>(value);
      return;
    case DType::bf16:
      static_cast<Bf16*>(data)[i] = to_bf16(static_cast<float>(value));
      return;
    case DType::f16:
      static_cast<F16*>(data)[i] = to_f16(static_cast<float>(value));
      return;
    default:
      static_cast<float*>(data)[i] = static_cast<float>(value);
  }
}

}  // namespace belay::comm
