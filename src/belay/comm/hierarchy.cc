#include "belay/comm/hierarchy.h"

#include <algorithm>
#include <map>
#include <utility>

namespace belay::comm {
namespace {

PatternPtr inner_reduce_scatter(Inner inner, Blocks blocks, Roles roles) {
  switch (inner) {
    case Inner::ring:
      return ring_reduce_scatter(std::move(blocks), roles);
    case Inner::circulant:
      return circulant_reduce_scatter(std::move(blocks), roles);
    case Inner::direct:
    case Inner::leader:
      break;
  }
  return direct_reduce_scatter(std::move(blocks), roles);
}

PatternPtr inner_all_gather(Inner inner, Blocks blocks) {
  switch (inner) {
    case Inner::ring:
      return ring_all_gather(std::move(blocks));
    case Inner::circulant:
      return circulant_all_gather(std::move(blocks));
    case Inner::direct:
    case Inner::leader:
      break;
  }
  return direct_all_gather(std::move(blocks));
}

PatternPtr leaders(const std::vector<std::vector<int>>& domains, int ranks, Range range,
                   Outer outer, int segments) {
  std::vector<Group> up;
  std::vector<Group> down;
  std::vector<int> heads;
  for (const std::vector<int>& members : domains) {
    const int size = static_cast<int>(members.size());
    up.push_back({leader_reduce(size, range, {Buffer::input, Buffer::work}), members});
    down.push_back({leader_broadcast(size, range), members});
    heads.push_back(members.front());
  }
  const Roles across{Buffer::work, Buffer::output};
  std::vector<Group> middle;
  const int count = static_cast<int>(heads.size());
  middle.push_back({outer_all_reduce(outer, count, range, across, segments), std::move(heads)});
  std::vector<PatternPtr> phases;
  phases.push_back(on_groups(std::move(up), ranks));
  phases.push_back(on_groups(std::move(middle), ranks));
  phases.push_back(on_groups(std::move(down), ranks));
  return sequence(std::move(phases));
}

}  // namespace

std::vector<std::vector<int>> members_of_domains(const std::vector<int>& domain_of) {
  std::map<int, std::size_t> index_of;
  std::vector<std::vector<int>> domains;
  for (std::size_t rank = 0; rank < domain_of.size(); ++rank) {
    const auto [found, added] = index_of.try_emplace(domain_of[rank], domains.size());
    if (added) domains.emplace_back();
    domains[found->second].push_back(static_cast<int>(rank));
  }
  return domains;
}

PatternPtr outer_all_reduce(Outer outer, int positions, Range range, Roles roles, int segments) {
  const Blocks blocks = Blocks::even(range.begin, range.end, positions);
  std::vector<PatternPtr> parts;
  switch (outer) {
    case Outer::ring:
      parts.push_back(ring_reduce_scatter(blocks, roles));
      parts.push_back(ring_all_gather(blocks));
      break;
    case Outer::recursive_doubling:
      return recursive_doubling(positions, range, roles, false);
    case Outer::halving_doubling:
      if (is_power_of_two(positions)) return halving_doubling(positions, range, roles);
      parts.push_back(circulant_reduce_scatter(blocks, roles));
      parts.push_back(circulant_all_gather(blocks));
      break;
    case Outer::double_tree:
      return double_tree(positions, range, roles, segments);
    case Outer::direct:
      parts.push_back(direct_reduce_scatter(blocks, roles));
      parts.push_back(direct_all_gather(blocks));
      break;
  }
  return sequence(std::move(parts));
}

PatternPtr hierarchical_all_reduce(const std::vector<int>& domain_of, Range range, Inner inner,
                                   Outer outer, int segments) {
  const int ranks = static_cast<int>(domain_of.size());
  const std::vector<std::vector<int>> domains = members_of_domains(domain_of);
  if (inner == Inner::leader) return leaders(domains, ranks, range, outer, segments);

  std::vector<Group> scatter;
  std::vector<Group> collect;
  std::vector<Blocks> cuts;
  std::vector<std::int64_t> bounds;
  for (const std::vector<int>& members : domains) {
    cuts.push_back(Blocks::even(range.begin, range.end, static_cast<int>(members.size())));
    const Blocks& blocks = cuts.back();
    scatter.push_back(
        {inner_reduce_scatter(inner, blocks, {Buffer::input, Buffer::work}), members});
    collect.push_back({inner_all_gather(inner, blocks), members});
    bounds.insert(bounds.end(), blocks.bounds.begin(), blocks.bounds.end());
  }
  std::sort(bounds.begin(), bounds.end());
  bounds.erase(std::unique(bounds.begin(), bounds.end()), bounds.end());

  std::vector<Group> across;
  for (std::size_t piece = 0; piece + 1 < bounds.size(); ++piece) {
    const Range part{bounds[piece], bounds[piece + 1]};
    std::vector<int> owners;
    for (std::size_t domain = 0; domain < domains.size(); ++domain) {
      const std::vector<std::int64_t>& ends = cuts[domain].bounds;
      // The block that begins at or before the piece and ends after it.
      const auto after = std::upper_bound(ends.begin(), ends.end(), part.begin);
      owners.push_back(domains[domain][static_cast<std::size_t>(after - ends.begin()) - 1]);
    }
    const int count = static_cast<int>(owners.size());
    across.push_back(
        {outer_all_reduce(outer, count, part, {Buffer::work, Buffer::output}, segments),
         std::move(owners)});
  }
  std::vector<PatternPtr> phases;
  phases.push_back(on_groups(std::move(scatter), ranks));
  phases.push_back(on_groups(std::move(across), ranks));
  phases.push_back(on_groups(std::move(collect), ranks));
  return sequence(std::move(phases));
}

}  // namespace belay::comm
