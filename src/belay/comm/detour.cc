#include "belay/comm/detour.h"

#include <algorithm>
#include <array>
#include <numeric>

namespace belay::comm {
namespace {

class Ring {
 public:
  Ring(std::span<const Link> slow, std::span<const int> domain_of, std::vector<int> order)
      : slow_(slow), domain_of_(domain_of), order_(std::move(order)) {}

  // Whether no slow link leads from a rank to the next.
  [[nodiscard]] bool clear() const {
    for (std::size_t i = 0; i < order_.size(); ++i) {
      if (cost_behind(i) >= kAlong) return false;
    }
    return true;
  }

  // The best exchange of two places, if it helps. An exchange changes the links next to the two
  // places only; where they cost nothing there is nothing to gain.
  bool improve() {
    const std::size_t places = order_.size();
    std::vector<bool> costs(places);
    for (std::size_t i = 0; i < places; ++i) {
      costs[i] = cost_behind(i) > 0 || cost_behind((i + places - 1) % places) > 0;
    }
    std::int64_t most = 0;
    std::optional<std::pair<std::size_t, std::size_t>> best;
    for (std::size_t i = 0; i < places; ++i) {
      for (std::size_t j = i + 1; j < places; ++j) {
        if (!costs[i] && !costs[j]) continue;
        const std::int64_t before = cost_around(i, j);
        std::swap(order_[i], order_[j]);
        const std::int64_t gain = before - cost_around(i, j);
        std::swap(order_[i], order_[j]);
        if (gain <= most) continue;
        most = gain;
        best = {i, j};
      }
    }
    if (best) std::swap(order_[best->first], order_[best->second]);
    return best.has_value();
  }
  void reverse() { std::reverse(order_.begin(), order_.end()); }
  [[nodiscard]] const std::vector<int>& order() const { return order_; }

 private:
  // Links first, in the direction of the ring, then against it, then changes of domain.
  static constexpr std::int64_t kAgainst = std::int64_t{1} << 20;
  static constexpr std::int64_t kAlong = kAgainst << 20;

  // Of the way from a place to the next.
  [[nodiscard]] std::int64_t cost_behind(std::size_t place) const {
    const int from = order_[place];
    const int to = order_[(place + 1) % order_.size()];
    std::int64_t cost = kAlong * std::count(slow_.begin(), slow_.end(), Link{from, to}) +
                        kAgainst * std::count(slow_.begin(), slow_.end(), Link{to, from});
    if (!domain_of_.empty() &&
        domain_of_[static_cast<std::size_t>(from)] != domain_of_[static_cast<std::size_t>(to)]) {
      ++cost;
    }
    return cost;
  }
  // Of the ways next to two places, each once.
  [[nodiscard]] std::int64_t cost_around(std::size_t i, std::size_t j) const {
    const std::size_t places = order_.size();
    const std::array<std::size_t, 4> behind = {(i + places - 1) % places, i,
                                               (j + places - 1) % places, j};
    std::int64_t cost = 0;
    for (std::size_t k = 0; k < behind.size(); ++k) {
      const auto* const end = behind.begin() + k;
      if (std::find(behind.begin(), end, behind[k]) == end) cost += cost_behind(behind[k]);
    }
    return cost;
  }

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
  if (slow.empty()) return start;
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
