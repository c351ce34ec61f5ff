#pragma once
// The algorithms by name, and the schedules they give. A schedule is a function of what all ranks
// of a call share, so all ranks make the same one.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "belay/comm/hierarchy.h"
#include "belay/comm/link_meter.h"
#include "belay/comm/schedule.h"

namespace belay::comm {

enum class Algorithm : std::uint8_t {
  ring,
  double_ring,
  segmented_ring,
  recursive_doubling,
  halving_doubling,
  double_tree,
  hierarchical,
  direct,
  one_shot,
  binomial,
  chain,
  pairwise,
  dissemination,
  direct_store,
};
inline constexpr int kAlgorithms = 14;

// Whether ranks write to each other's memory: only where they share it.
constexpr bool needs_shared_memory(Algorithm algorithm) {
  return algorithm == Algorithm::direct_store;
}

std::string_view name_of(Algorithm algorithm);
std::optional<Algorithm> parse_algorithm(std::string_view name);
std::string_view name_of(Inner inner);
std::string_view name_of(Outer outer);

// Those that a collective has.
std::span<const Algorithm> algorithms_of(Collective collective);

// Everything a schedule depends on.
struct ScheduleKey {
  Collective collective = Collective::all_reduce;
  Algorithm algorithm = Algorithm::ring;
  int ranks = 1;
  int root = 0;
  std::int64_t count = 0;  // as in Signature
  // Lanes of a segmented ring, segments of trees and chains.
  int segments = 1;
  // The largest message that may go through the transport's buffers.
  std::int64_t post_elements = 0;
  // Whether sums must associate in the order of ranks (see below).
  bool order_stable = false;
  // Of hierarchical.
  Inner inner = Inner::direct;
  Outer outer = Outer::ring;

  friend bool operator==(const ScheduleKey&, const ScheduleKey&) = default;
};

// How the ranks lie; outlives no schedule.
struct Layout {
  std::vector<int> domain_of{};        // domain of each rank; empty: one domain
  std::vector<int> ring{};             // ranks in the order of the ring; empty: 0, 1, ...
  std::vector<std::int64_t> bounds{};  // of blocks that are not even; empty: even
  std::vector<Link> slow{};            // links that all-reduces leave alone (detour.h)
};

// Error(usage) if the collective lacks the algorithm.
Schedule make_schedule(const ScheduleKey& key, const Layout& layout = {});

// The order-stable sum. Contributions of ranks [first, last) associate as a balanced binary tree:
// sum(first, last) = sum(first, middle) + sum(middle, last), middle = first + the largest power of
// two below last - first. Each element depends on its contributions alone: not on the number of
// elements, on where in a bucket it lies, or on which ranks are near each other. The direct
// exchanges and one-shot sum so for any number of ranks, recursive doubling and halving-doubling
// for powers of two. Rings, and halving-doubling for other numbers, gather contributions by direct
// exchange instead and keep their own way of spreading the result; recursive doubling for other
// numbers, double trees and hierarchies become the direct exchange as a whole.

}  // namespace belay::comm
