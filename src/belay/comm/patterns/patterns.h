#pragma once
// The patterns that schedules are made of, over positions 0 .. p-1 (p from the blocks, or given).
// Costs: alpha per message, beta per byte sent, n the bytes of the whole range.

#include <cstdint>
#include <vector>

#include "belay/comm/schedule.h"

namespace belay::comm {

// [begin, end) of the vector.
struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  [[nodiscard]] std::int64_t count() const { return end - begin; }
};

// Where a rank's contribution is, and where the reduction goes.
struct Roles {
  Buffer source = Buffer::input;
  Buffer result = Buffer::output;
};

// --- Reduce-scatter: position i ends with block i complete. With one position: a copy.
// p-1 rounds to the next neighbour, (p-1)(alpha + n/p beta).
// `owned`: which block each position ends with; empty: its own.
PatternPtr ring_reduce_scatter(Blocks blocks, Roles roles, std::vector<int> owned = {});
// ceil(log2 p) rounds for any p, (p-1)/p n beta (J. L. Träff, "Optimal, non-pipelined
// reduce-scatter and allreduce algorithms", 2024, algorithm 1).
PatternPtr circulant_reduce_scatter(Blocks blocks, Roles roles);
// One round, every pair at once; contributions are summed in the order of positions.
PatternPtr direct_reduce_scatter(Blocks blocks, Roles roles);

// --- All-gather within output: block i is there at position i, then everywhere. The mirror images.
// `owned`: which block each position has at the start; empty: its own.
PatternPtr ring_all_gather(Blocks blocks, std::vector<int> owned = {});
PatternPtr circulant_all_gather(Blocks blocks);
PatternPtr direct_all_gather(Blocks blocks);

// --- All-reduce.
// log2 p exchanges of everything; positions beyond a power of two fold in first. With `posts` the
// messages go through the transport's buffers; without, spare [2 * range.begin, 2 * range.end) is
// used. Sums associate as a balanced tree in the order of positions if p is a power of two.
PatternPtr recursive_doubling(int positions, Range range, Roles roles, bool posts);
// Vector halving with distance doubling, then back; p a power of two. Sums associate as above.
PatternPtr halving_doubling(int positions, Range range, Roles roles);
// Two binary trees, half the data each, in segments that follow one another; every position is an
// inner node of at most one (Sanders, Speck, Träff 2009, with the trees of NCCL).
PatternPtr double_tree(int positions, Range range, Roles roles, int segments);
// Every position reduces its block and writes the result to all, in the order of positions: each
// element is read and written once per rank, by one processor. Ranks must share memory.
PatternPtr direct_store(Blocks blocks, Roles roles);
// Everybody sends everything to everybody; sums in the order of positions. Without `posts` it needs
// spare [2 * range.begin, 2 * range.end).
PatternPtr one_shot(int positions, Range range, Roles roles, bool posts);

// --- From or to position 0.
PatternPtr binomial_broadcast(int positions, Range range);
PatternPtr chain_broadcast(int positions, Range range, int segments);
// Everybody reads from position 0.
PatternPtr flat_broadcast(int positions, Range range);
// Non-root positions keep partial results in spare.
PatternPtr binomial_reduce(int positions, Range range);
PatternPtr chain_reduce(int positions, Range range, int segments);
// The same between roles, for the leaders of a hierarchy: partial results in work.
PatternPtr leader_reduce(int positions, Range range, Roles roles);
PatternPtr leader_broadcast(int positions, Range range);

// Rank i has block i in spare; the root copies all of them to output.
PatternPtr collect_at_root(Blocks blocks, int root);

// --- All-to-all of blocks.
PatternPtr pairwise_all_to_all(Blocks blocks);
PatternPtr direct_all_to_all(Blocks blocks);

// Dissemination: ceil(log2 p) rounds of empty messages.
PatternPtr dissemination_barrier(int positions);

// Every position copies the range.
PatternPtr copy_range(Range range, Buffer src, Buffer dst);
// Position i copies its block: from the start of `input` to its place in `output`.
PatternPtr place_own_block(Blocks blocks);

// --- Combinations.
// One after the other.
PatternPtr sequence(std::vector<PatternPtr> parts);
// At the same time; the parts touch disjoint elements.
PatternPtr together(std::vector<PatternPtr> parts);
struct Group {
  PatternPtr pattern;
  std::vector<int> members;  // rank of each position
};
// Patterns of groups of ranks, at the same time. A rank may be in several groups.
PatternPtr on_groups(std::vector<Group> groups, int ranks);
PatternPtr on_members(PatternPtr pattern, std::vector<int> members);
// Output holds this rank's block only, from its start.
PatternPtr own_block_output(PatternPtr pattern, Blocks blocks);

// Runs over p as the patterns cut it.
constexpr int log2_floor(int p) {
  int k = 0;
  while ((p >> (k + 1)) > 0) ++k;
  return k;
}
constexpr int log2_ceil(int p) {
  return (p & (p - 1)) == 0 ? log2_floor(p) : log2_floor(p) + 1;
}
constexpr bool is_power_of_two(int p) {
  return (p & (p - 1)) == 0;
}

}  // namespace belay::comm
