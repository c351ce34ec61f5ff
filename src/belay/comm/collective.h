#pragma once
// What a collective operation is, and the signature that every message of a call carries.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "belay/base/dtype.h"

namespace belay::comm {

// Counts are elements. With p ranks and blocks of counts c_0 .. c_{p-1} that add up to n:
enum class Collective : std::uint8_t {
  all_reduce,      // n in, n out: the reduction of all inputs, everywhere
  reduce_scatter,  // n in, c_r out: block r of the reduction
  all_gather,      // c_r in, n out: the blocks in rank order
  broadcast,       // n in at the root, n out everywhere
  reduce,          // n in, n out at the root
  all_to_all,  // p blocks of b in, p blocks of b out: block j of rank i becomes block i of rank j
  barrier,     // nothing moves
};
inline constexpr int kCollectives = 7;

enum class ReduceOp : std::uint8_t { sum, prod, min, max, avg };

std::string_view name_of(Collective collective);
std::string_view name_of(ReduceOp op);
std::optional<Collective> parse_collective(std::string_view name);
std::optional<ReduceOp> parse_reduce_op(std::string_view name);

constexpr bool reduces(Collective collective) {
  return collective == Collective::all_reduce || collective == Collective::reduce_scatter ||
         collective == Collective::reduce;
}
constexpr bool has_root(Collective collective) {
  return collective == Collective::broadcast || collective == Collective::reduce;
}

// f64, f32, bf16, f16 and i32 can be reduced; anything can be moved.
constexpr bool can_reduce(DType dtype) {
  return dtype == DType::f64 || dtype == DType::f32 || dtype == DType::bf16 ||
         dtype == DType::f16 || dtype == DType::i32;
}

// Partial results are kept and sent in this type; only complete ones are rounded to the storage
// type, once. So a bf16 sum over p ranks has one bf16 rounding, whatever the algorithm.
constexpr DType accumulation_type(DType dtype) {
  return dtype == DType::bf16 || dtype == DType::f16 ? DType::f32 : dtype;
}

// What all ranks of a call must agree on. Travels with every message and is compared there.
struct Signature {
  std::uint64_t sequence = 0;  // number of the call in its group, from 1
  std::int64_t count = 0;      // n above; for all_to_all p * b
  std::int32_t root = -1;
  Collective collective = Collective::barrier;
  ReduceOp op = ReduceOp::sum;
  DType dtype = DType::f32;
  // The choice (choice.h), so that different ones are a mismatch too: its algorithm, or one of
  // those below, its segments, and the levels of a hierarchy.
  std::uint8_t algorithm = 0;
  std::uint8_t inner = 0;
  std::uint8_t outer = 0;
  std::uint16_t segments = 1;
  std::uint32_t epoch = 0;  // how often the group has changed its order of ranks

  friend bool operator==(const Signature&, const Signature&) = default;
};
// Signatures travel as bytes.
static_assert(std::has_unique_object_representations_v<Signature>);

// Values of Signature::algorithm that no choice has.
inline constexpr std::uint8_t kOwnSchedule = 255;
inline constexpr std::uint8_t kExchange = 254;  // a barrier's, whose messages test links

// "all_reduce #17 (sum of 1000 f32, by chain x16)"
std::string to_string(const Signature& signature);

}  // namespace belay::comm
