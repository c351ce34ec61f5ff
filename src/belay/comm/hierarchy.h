#pragma once
// Domains: groups of ranks with fast links among them (a host, a socket, eight devices on one
// switch). A hierarchical all-reduce crosses domains with the least data.

#include <vector>

#include "belay/comm/patterns/patterns.h"

namespace belay::comm {

enum class Inner : std::uint8_t { ring, circulant, direct, leader };
inline constexpr int kInners = 4;
enum class Outer : std::uint8_t {
  ring,
  recursive_doubling,
  halving_doubling,
  double_tree,
  direct,
};
inline constexpr int kOuters = 5;

// Members of each domain, in the order of ranks; from the domain of each rank (any numbers).
std::vector<std::vector<int>> members_of_domains(const std::vector<int>& domain_of);

// Reduce-scatter inside every domain, all-reduce among the owners of the same elements, all-gather
// inside. Where domains differ in size the vector is cut at the block ends of all of them, and each
// piece is reduced among its owners. With Inner::leader: reduce to the first rank of each domain,
// all-reduce among those, broadcast.
PatternPtr hierarchical_all_reduce(const std::vector<int>& domain_of, Range range, Inner inner,
                                   Outer outer, int segments);

// The all-reduce of one of the algorithms above, for any p.
PatternPtr outer_all_reduce(Outer outer, int positions, Range range, Roles roles, int segments);

}  // namespace belay::comm
