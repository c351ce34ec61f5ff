#pragma once
// How an operator keeps its own intermediate results. Statistics, scores and sums are f32 unless
// the protection is switched off; then they pass through the storage type of the operands, with
// everything that follows for their range.

#include <algorithm>
#include <cmath>

#include "belay/base/dtype.h"

namespace belay {

enum class Inside : std::uint8_t {
  full,       // f32
  stored,     // rounded to the storage type
  saturated,  // likewise; f16 stays within +-65504, and 0 takes the place of NaN
};

// An intermediate result of an operator on `storage`.
inline float kept_inside(float value, DType storage, Inside inside) {
  if (inside == Inside::full || storage == DType::f32) return value;
  if (storage == DType::bf16) return to_float(to_bf16(value));
  if (inside == Inside::saturated) {
    value = std::isnan(value) ? 0.0F : std::clamp(value, -kLargestF16, kLargestF16);
  }
  return to_float(to_f16(value));
}

}  // namespace belay
