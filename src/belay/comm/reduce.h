#pragma once
// The arithmetic of collectives. Storage types f32, f64, i32, bf16 and f16; the last two compute in
// f32 (accumulation_type). Operands keep their order, so the bits of a result depend on nothing
// else. min and max return NaN if an operand is NaN.

#include <cstddef>
#include <cstdint>
#include <span>

#include "belay/comm/collective.h"

namespace belay::comm {

struct Arithmetic {
  DType storage = DType::f32;
  ReduceOp op = ReduceOp::sum;
  int ranks = 1;  // what an average is divided by
};

struct Values {
  const void* data = nullptr;
  bool wide = false;  // in the accumulation type, not the storage type
};

// Complete results are divided if an average is wanted, and rounded to the storage type; others
// stay in the accumulation type.
struct Result {
  void* data = nullptr;
  bool complete = false;
};

// dst = first op second, element by element. dst may be one of the operands.
void reduce_pair(const Arithmetic& arithmetic, Values first, Values second, Result dst,
                 std::int64_t count);

// The same over several parts, associated as a balanced tree: the first half, of a power of two
// parts, then the rest. dst may be one of the parts, and so may each of `copies`, which become what
// dst becomes; of each element all parts are read before anything is written.
void reduce_parts(const Arithmetic& arithmetic, std::span<const void* const> parts, bool wide,
                  Result dst, std::int64_t count, std::span<void* const> copies = {});

// dst = src, from storage to accumulation type or, completing it, back.
void widen_values(const Arithmetic& arithmetic, const void* src, void* dst, std::int64_t count);
void complete_values(const Arithmetic& arithmetic, const void* src, void* dst, std::int64_t count);

}  // namespace belay::comm
