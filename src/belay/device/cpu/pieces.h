#pragma once
// How the fused kernels cut their work. The sizes depend on shapes alone, so the pieces, the
// order in which partial sums meet and therefore every bit of the result do not depend on threads.

#include <algorithm>
#include <cstdint>

#include "belay/base/parallel.h"
#include "belay/base/tensor.h"

namespace belay {

// Elements of a piece of pointwise work: large enough to hide the cost of handing it out, small
// enough that two threads finish together.
inline constexpr std::int64_t kPieceElements = std::int64_t{1} << 15;

// From this size on a result is written past the caches, which saves reading the lines that it
// overwrites: by the time it is read again most of it would have left the second-level caches, and
// a third-level cache is better left to weights.
inline constexpr std::size_t kStreamBytes = std::size_t{8} << 20;

inline bool streams(const Tensor& dst) {
  return dst.bytes() >= kStreamBytes;
}

struct Range {
  std::int64_t begin;
  std::int64_t end;
  [[nodiscard]] std::int64_t size() const { return end - begin; }
};

// Calls body(Range) for pieces of `grain` items of [0, items).
template <class Body>
void parallel_ranges(std::int64_t items, std::int64_t grain, Body&& body) {
  parallel_for(pieces_of(items, grain), [&](std::int64_t piece) {
    body(Range{piece * grain, std::min(items, (piece + 1) * grain)});
  });
}

// Rows of `width` elements per piece.
inline std::int64_t rows_per_piece(std::int64_t width) {
  return std::max<std::int64_t>(1, kPieceElements / std::max<std::int64_t>(1, width));
}

// Sums over rows are taken chunk by chunk, then over the chunks in order.
inline constexpr std::int64_t kMaxChunks = 32;

inline std::int64_t rows_per_chunk(std::int64_t rows) {
  return std::max<std::int64_t>(8, pieces_of(rows, kMaxChunks));
}

// Calls body(T{}) with the element type of this storage.
template <class Body>
void with_storage(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::bf16:
      return body(Bf16{});
    case DType::f16:
      return body(F16{});
    default:
      return body(float{});
  }
}

// Why a fused kernel does not take a tensor, or nullptr.
inline const char* unless_storable(const Tensor& tensor) {
  return is_storage(tensor.dtype) ? nullptr : "storage is not f32, bf16 or f16";
}
inline const char* unless_f32(const Tensor& tensor) {
  return tensor.empty() || tensor.dtype == DType::f32 ? nullptr : "an f32 operand is not f32";
}
inline const char* unless_same(const Tensor& a, const Tensor& b) {
  return b.empty() || a.dtype == b.dtype ? nullptr : "storage types differ";
}

// The first reason of several.
template <class... Reasons>
const char* first_reason(Reasons... reasons) {
  const char* found = nullptr;
  ((found = found != nullptr ? found : reasons), ...);
  return found;
}

}  // namespace belay
