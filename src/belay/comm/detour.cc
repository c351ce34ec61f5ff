#include "belay/comm/detour.h"

#include <algorithm>
#include <numeric>

namespace belay::comm {
namespace {

class Ring {
 public:
  Ring(std::span<const Link> slow, std::span<const int> domain_of, std::vector<int> order)
      : slow_(slow), domain_of_(domain_of), order_(std::move(order)) {}

  // Links first, in the direction of the ring, then against it, then changes of domain.
  [[nodiscard]] std::int64_t cost() const {
    std::int64_t along = 0;
    std::int64_t against = 0;
    std::int64_t crossings = 0;
    for (std::size_t i = 0; i < order_.size(); ++i) {
      const int from = order_[i];
      const int to = order_[(i + 1) % order_.size()];
      along += std::count(slow_.begin(), slow_.end(), Link{from, to});
      against += std::count(slow_.begin(), slow_.end(), Link{to, from});
      if (!domain_of_.empty()) {
        crossings +=
            domain_of_[static_cast<std::size_t>(from)] != domain_of_[static_cast<std::size_t>(to)];
      }
    }
    constexpr std::int64_t kMuch = std::int64_t{1} << 20;
    return (along * kMuch + against) * kMuch + crossings;
  }
  [[nodiscard]] bool clear() const {
    constexpr std::int64_t kMuch = std::int64_t{1} << 40;
    return cost() < kMuch;
  }

  // The best exchange of two places, if it helps.
  bool improve() {
    std::int64_t least = cost();
    std::optional<std::pair<std::size_t, std::size_t>> best;
    for (std::size_t i = 0; i < order_.size(); ++i) {
      for (std::size_t j = i + 1; j < order_.size(); ++j) {
        std::swap(order_[i], order_[j]);
        const std::int64_t now = cost();
        std::swap(order_[i], order_[j]);
        if (now >= least) continue;
        least = now;
        best = {i, j};
      }
    }
    if (best) std::swap(order_[best->first], order_[best->second]);
    return best.has_value();
  }
  void reverse() { std::reverse(order_.begin(), order_.end()); }
  [[nodiscard]] const std::vector<int>& order() const { return order_; }

 private:
  std::span<const Link> slow_;
  std::span<const int> domain_of_;
  std::vector<int> order_;
};

}  // namespace

std::optional<std::vector<int>> ring_around(std::span<const Link> slow, int ranks,
                                            std::span<const int> order,
                                            std::span<const int> domain_of) {
  std::vector<int> start(order.begin(), order.end());
  if (start.empty()) {
    start.resize(static_cast<std::size_t>(ranks));
    std::iota(start.begin(), start.end(), 0);
  }
  Ring ring(slow, domain_of, std::move(start));
  for (const bool turned : {false, true}) {
    if (turned) ring.reverse();
    while (ring.improve()) {
    }
    if (ring.clear()) return ring.order();
  }
  return std::nullopt;
}

Blocks blocks_around(std::span<const Link> slow, Range range, int ranks, bool direct) {
  std::vector<bool> owns(static_cast<std::size_t>(ranks), true);
  for (const Link& link : slow) {
    owns[static_cast<std::size_t>(link.to)] = false;
    if (direct) owns[static_cast<std::size_t>(link.from)] = false;
  }
  const auto owners = static_cast<int>(std::count(owns.begin(), owns.end(), true));
  if (owners == 0) return Blocks::even(range.begin, range.end, ranks);
  const Blocks even = Blocks::even(range.begin, range.end, owners);
  Blocks blocks;
  blocks.bounds = {range.begin};
  int owner = 0;
  for (const bool own : owns) {
    if (own) ++owner;
    blocks.bounds.push_back(even.bounds[static_cast<std::size_t>(owner)]);
  }
  return blocks;
}

Choice choice_around(const Choice& choice, Collective collective, bool order_stable) {
  switch (collective) {
    case Collective::all_reduce:
      if (choice.algorithm == Algorithm::ring || choice.algorithm == Algorithm::double_ring ||
          choice.algorithm == Algorithm::segmented_ring) {
        return choice;
      }
      return {.algorithm = Algorithm::direct};
    case Collective::reduce_scatter:
      return order_stable ? choice : Choice{.algorithm = Algorithm::ring};
    case Collective::all_gather:
      return {.algorithm = Algorithm::ring};
    default:
      return choice;
  }
}

}  // namespace belay::comm
