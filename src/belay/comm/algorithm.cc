#include "belay/comm/algorithm.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "belay/base/error.h"
#include "belay/comm/detour.h"

namespace belay::comm {
namespace {

constexpr std::array<std::string_view, kAlgorithms> kNames = {
    "ring",        "double_ring",  "segmented_ring", "recursive_doubling", "halving_doubling",
    "double_tree", "hierarchical", "direct",         "one_shot",           "binomial",
    "chain",       "pairwise",     "dissemination",  "direct_store"};

std::vector<int> positions_from(int first, int ranks) {
  std::vector<int> members(static_cast<std::size_t>(ranks));
  for (int position = 0; position < ranks; ++position) {
    members[static_cast<std::size_t>(position)] = (first + position) % ranks;
  }
  return members;
}

std::vector<int> ring_order(const Layout& layout, int ranks) {
  return layout.ring.empty() ? positions_from(0, ranks) : layout.ring;
}

PatternPtr in_sequence(PatternPtr first, PatternPtr second) {
  std::vector<PatternPtr> parts;
  parts.push_back(std::move(first));
  parts.push_back(std::move(second));
  return sequence(std::move(parts));
}

// Block i belongs to position i, which is rank order[i]. In a stable sum the contributions go
// straight to the owners, which add them up in the order of ranks.
PatternPtr ring_all_reduce(Range range, const std::vector<int>& order, bool stable,
                           const Layout& layout) {
  const int p = static_cast<int>(order.size());
  const Blocks blocks = Blocks::even(range.begin, range.end, p);
  if (stable) {
    const Blocks owned = blocks_around(layout.slow, range, p, false);
    return in_sequence(direct_reduce_scatter(owned, {}),
                       on_members(ring_all_gather(owned, order), order));
  }
  return on_members(in_sequence(ring_reduce_scatter(blocks, {}), ring_all_gather(blocks)), order);
}

void add_all_reduce(Schedule& schedule, const ScheduleKey& key, const Layout& layout) {
  const int p = key.ranks;
  const Range all{0, key.count};
  const Blocks& blocks = schedule.blocks;
  const bool posts = key.count <= key.post_elements;
  const bool stable = key.order_stable;
  auto& lanes = schedule.lanes;
  switch (key.algorithm) {
    case Algorithm::ring:
      lanes.push_back(ring_all_reduce(all, ring_order(layout, p), stable, layout));
      return;
    case Algorithm::double_ring: {
      const Blocks halves = Blocks::even(0, key.count, 2);
      std::vector<int> back = ring_order(layout, p);
      const std::vector<int> forth = back;
      std::reverse(back.begin(), back.end());
      std::vector<PatternPtr> rings;
      rings.push_back(ring_all_reduce({halves.begin(0), halves.end(0)}, forth, stable, layout));
      rings.push_back(ring_all_reduce({halves.begin(1), halves.end(1)}, back, stable, layout));
      lanes.push_back(together(std::move(rings)));
      return;
    }
    case Algorithm::segmented_ring: {
      const int count = std::clamp(key.segments, 1, kMostLanes);
      const Blocks segments = Blocks::even(0, key.count, count);
      for (int segment = 0; segment < count; ++segment) {
        lanes.push_back(ring_all_reduce({segments.begin(segment), segments.end(segment)},
                                        ring_order(layout, p), stable, layout));
      }
      return;
    }
    case Algorithm::recursive_doubling:
      if (stable && !is_power_of_two(p)) break;
      lanes.push_back(recursive_doubling(p, all, {}, posts));
      if (!posts) schedule.spare = 2 * key.count;
      return;
    case Algorithm::halving_doubling:
      if (is_power_of_two(p)) {
        lanes.push_back(halving_doubling(p, all, {}));
        return;
      }
      lanes.push_back(in_sequence(
          stable ? direct_reduce_scatter(blocks, {}) : circulant_reduce_scatter(blocks, {}),
          circulant_all_gather(blocks)));
      return;
    case Algorithm::double_tree:
      if (stable) break;
      lanes.push_back(double_tree(p, all, {}, key.segments));
      return;
    case Algorithm::hierarchical:
      if (stable) break;
      lanes.push_back(hierarchical_all_reduce(layout.domain_of.empty()
                                                  ? std::vector<int>(static_cast<std::size_t>(p))
                                                  : layout.domain_of,
                                              all, key.inner, key.outer, key.segments));
      if (key.outer == Outer::recursive_doubling) schedule.spare = 2 * key.count;
      return;
    case Algorithm::direct_store:
      lanes.push_back(direct_store(blocks, {}));
      return;
    case Algorithm::one_shot:
      lanes.push_back(one_shot(p, all, {}, posts));
      if (!posts) schedule.spare = key.count;
      return;
    default:
      break;
  }
  const Blocks owned = blocks_around(layout.slow, all, p, true);
  lanes.push_back(in_sequence(direct_reduce_scatter(owned, {}), direct_all_gather(owned)));
}

// Rings of blocks that belong to ranks pass slow links where the order of the ring does.
void add_reduce_scatter(Schedule& schedule, const ScheduleKey& key, const Layout& layout) {
  const Blocks& blocks = schedule.blocks;
  PatternPtr pattern;
  if (key.order_stable || key.algorithm == Algorithm::direct) {
    pattern = direct_reduce_scatter(blocks, {});
  } else if (key.algorithm == Algorithm::ring) {
    const std::vector<int> order = ring_order(layout, key.ranks);
    pattern = on_members(ring_reduce_scatter(blocks, {}, order), order);
  } else {
    pattern = circulant_reduce_scatter(blocks, {});
  }
  schedule.lanes.push_back(own_block_output(std::move(pattern), blocks));
}

void add_all_gather(Schedule& schedule, const ScheduleKey& key, const Layout& layout) {
  const Blocks& blocks = schedule.blocks;
  PatternPtr pattern;
  if (key.algorithm == Algorithm::direct) {
    pattern = direct_all_gather(blocks);
  } else if (key.algorithm == Algorithm::ring) {
    const std::vector<int> order = ring_order(layout, key.ranks);
    pattern = on_members(ring_all_gather(blocks, order), order);
  } else {
    pattern = circulant_all_gather(blocks);
  }
  schedule.lanes.push_back(in_sequence(place_own_block(blocks), std::move(pattern)));
}

void add_reduce(Schedule& schedule, const ScheduleKey& key) {
  const Range all{0, key.count};
  schedule.spare = key.count;
  if (key.order_stable || key.algorithm == Algorithm::direct) {
    schedule.lanes.push_back(
        in_sequence(direct_reduce_scatter(schedule.blocks, {Buffer::input, Buffer::spare}),
                    collect_at_root(schedule.blocks, key.root)));
    return;
  }
  schedule.lanes.push_back(on_members(key.algorithm == Algorithm::chain
                                          ? chain_reduce(key.ranks, all, key.segments)
                                          : binomial_reduce(key.ranks, all),
                                      positions_from(key.root, key.ranks)));
}

void add_broadcast(Schedule& schedule, const ScheduleKey& key) {
  const Range all{0, key.count};
  PatternPtr pattern;
  if (key.algorithm == Algorithm::chain) {
    pattern = chain_broadcast(key.ranks, all, key.segments);
  } else if (key.algorithm == Algorithm::direct) {
    pattern = flat_broadcast(key.ranks, all);
  } else {
    pattern = binomial_broadcast(key.ranks, all);
  }
  schedule.lanes.push_back(on_members(std::move(pattern), positions_from(key.root, key.ranks)));
}

Blocks blocks_of(const ScheduleKey& key, const Layout& layout) {
  Blocks blocks;
  if (!layout.bounds.empty()) {
    blocks.bounds = layout.bounds;
  } else if (key.collective == Collective::all_to_all) {
    for (int rank = 1; rank <= key.ranks; ++rank) {
      blocks.bounds.push_back(key.count / key.ranks * rank);
    }
  } else {
    blocks = Blocks::even(0, key.count, key.ranks);
  }
  return blocks;
}

void add_lanes(Schedule& schedule, const ScheduleKey& key, const Layout& layout) {
  switch (key.collective) {
    case Collective::all_reduce:
      return add_all_reduce(schedule, key, layout);
    case Collective::reduce_scatter:
      return add_reduce_scatter(schedule, key, layout);
    case Collective::all_gather:
      return add_all_gather(schedule, key, layout);
    case Collective::broadcast:
      return add_broadcast(schedule, key);
    case Collective::reduce:
      return add_reduce(schedule, key);
    case Collective::all_to_all:
      schedule.lanes.push_back(key.algorithm == Algorithm::pairwise
                                   ? pairwise_all_to_all(schedule.blocks)
                                   : direct_all_to_all(schedule.blocks));
      return;
    case Collective::barrier:
      schedule.lanes.push_back(dissemination_barrier(key.ranks));
      return;
  }
}

}  // namespace

std::string_view name_of(Algorithm algorithm) {
  return kNames[static_cast<std::size_t>(algorithm)];
}

std::optional<Algorithm> parse_algorithm(std::string_view name) {
  for (std::size_t index = 0; index < kNames.size(); ++index) {
    if (kNames[index] == name) return static_cast<Algorithm>(index);
  }
  return std::nullopt;
}

std::string_view name_of(Inner inner) {
  constexpr std::array<std::string_view, 4> kInner = {"ring", "circulant", "direct", "leader"};
  return kInner[static_cast<std::size_t>(inner)];
}

std::string_view name_of(Outer outer) {
  constexpr std::array<std::string_view, 5> kOuter = {"ring", "recursive_doubling",
                                                      "halving_doubling", "double_tree", "direct"};
  return kOuter[static_cast<std::size_t>(outer)];
}

std::span<const Algorithm> algorithms_of(Collective collective) {
  using enum Algorithm;
  static constexpr Algorithm kAllReduce[] = {
      ring,        double_ring,  segmented_ring, recursive_doubling, halving_doubling,
      double_tree, hierarchical, direct,         direct_store,       one_shot};
  static constexpr Algorithm kScatter[] = {ring, halving_doubling, direct};
  static constexpr Algorithm kRooted[] = {binomial, chain, direct};
  static constexpr Algorithm kAllToAll[] = {pairwise, direct};
  static constexpr Algorithm kBarrier[] = {dissemination};
  switch (collective) {
    case Collective::all_reduce:
      return kAllReduce;
    case Collective::reduce_scatter:
    case Collective::all_gather:
      return kScatter;
    case Collective::broadcast:
    case Collective::reduce:
      return kRooted;
    case Collective::all_to_all:
      return kAllToAll;
    case Collective::barrier:
      break;
  }
  return kBarrier;
}

Schedule make_schedule(const ScheduleKey& key, const Layout& layout) {
  const auto known = algorithms_of(key.collective);
  if (std::find(known.begin(), known.end(), key.algorithm) == known.end()) {
    std::vector<std::string_view> names;
    for (const Algorithm algorithm : known) names.push_back(name_of(algorithm));
    fail(ExitCode::usage, "{} has no algorithm {}; choose one of {}", name_of(key.collective),
         name_of(key.algorithm), fmt::join(names, ", "));
  }
  Schedule schedule;
  schedule.name = name_of(key.algorithm);
  schedule.collective = key.collective;
  schedule.ranks = key.ranks;
  schedule.root = key.root;
  schedule.blocks = blocks_of(key, layout);
  if (key.ranks == 1) {
    schedule.lanes.push_back(copy_range({0, key.count}, Buffer::input, Buffer::output));
    return schedule;
  }
  add_lanes(schedule, key, layout);
  return schedule;
}

}  // namespace belay::comm
