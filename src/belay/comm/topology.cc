#include "belay/comm/topology.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "belay/base/error.h"
#include "belay/comm/processor_domain.h"

namespace belay::comm {
namespace {

constexpr std::size_t kListedRanks = 64;

int distinct(const std::vector<int>& values) {
  return static_cast<int>(std::set<int>(values.begin(), values.end()).size());
}

// Numbers from 0 on for pairs, in the order in which they appear.
std::vector<int> numbered(const std::vector<int>& first, const std::vector<int>& second) {
  std::map<std::pair<int, int>, int> numbers;
  std::vector<int> result;
  for (std::size_t i = 0; i < first.size(); ++i) {
    const auto next = static_cast<int>(numbers.size());
    result.push_back(numbers.try_emplace({first[i], second[i]}, next).first->second);
  }
  return result;
}

// What to do about a map whose domains reach over hosts; `domains`: cut at the hosts.
std::string way_out(RankMap map, const std::vector<int>& domains) {
  for (std::size_t rank = 0; rank < domains.size(); ++rank) {
    map.entries[rank].domain = domains[rank];
  }
  if (tears_a_domain(map)) {
    return "The ranks of a host are not neighbours, so no map fits: start them host by host "
           "(mpirun --map-by slot)";
  }
  return "Start the ranks elsewhere, or use this map:\n" + map.to_csv();
}

}  // namespace

int Topology::hosts() const {
  return distinct(host_of);
}

int Topology::domains() const {
  return distinct(domain_of);
}

Layout Topology::layout() const {
  Layout layout;
  layout.domain_of = domain_of;
  layout.ring.resize(host_of.size());
  std::iota(layout.ring.begin(), layout.ring.end(), 0);
  std::stable_sort(layout.ring.begin(), layout.ring.end(), [&](int a, int b) {
    const auto place = [&](int rank) {
      const auto at = static_cast<std::size_t>(rank);
      return std::pair(host_of[at], domain_of[at]);
    };
    return place(a) < place(b);
  });
  return layout;
}

std::string Topology::to_text() const {
  std::string text =
      fmt::format("{} ranks on {} host{}, {} domain{} ({})", host_of.size(), hosts(),
                  hosts() == 1 ? "" : "s", domains(), domains() == 1 ? "" : "s", source);
  if (domains() == 1 || host_of.size() > kListedRanks) return text;
  int before = -1;
  text += ":";
  for (const int rank : layout().ring) {
    const int domain = domain_of[static_cast<std::size_t>(rank)];
    text += fmt::format("{} {}", before >= 0 && domain != before ? " |" : "", rank);
    before = domain;
  }
  return text;
}

Topology topology_of_hosts(const std::vector<int>& host_of, const std::vector<int>& package_of) {
  std::set<int> unbound;
  for (std::size_t rank = 0; rank < host_of.size(); ++rank) {
    if (package_of[rank] < 0) unbound.insert(host_of[rank]);
  }
  std::vector<int> parts;
  for (std::size_t rank = 0; rank < host_of.size(); ++rank) {
    parts.push_back(unbound.contains(host_of[rank]) ? 0 : package_of[rank]);
  }
  Topology topology{host_of, numbered(host_of, parts), {}};
  topology.source = topology.domains() > topology.hosts() ? "processor packages" : "hosts";
  return topology;
}

Topology topology_of_map(const RankMap& map, const std::vector<int>& host_of,
                         const std::string& path) {
  if (map.ranks() != static_cast<int>(host_of.size())) {
    fail(ExitCode::data, "{}: the map has {} ranks, this run has {}; write a line for each rank",
         path, map.ranks(), host_of.size());
  }
  Topology topology{host_of, map.layout().domain_of, fmt::format("rank map {}", path)};
  std::map<int, int> first_rank;  // of each domain
  for (int rank = 0; rank < map.ranks(); ++rank) {
    const auto at = static_cast<std::size_t>(rank);
    const int first = first_rank.try_emplace(topology.domain_of[at], rank).first->second;
    if (host_of[static_cast<std::size_t>(first)] == host_of[at]) continue;
    fail(
        ExitCode::data,
        "{}: domain {} reaches over hosts: rank {} runs on host {}, rank {} on host {}; fast links "
        "end at a host. {}",
        path, topology.domain_of[at], first, host_of[static_cast<std::size_t>(first)], rank,
        host_of[at], way_out(map, numbered(host_of, topology.domain_of)));
  }
  // Who works with domains keeps tables of them.
  topology.domain_of = numbered(host_of, topology.domain_of);
  return topology;
}

Topology find_topology(Communicator& comm, const std::vector<int>& host_of) {
  const std::int32_t own = bound_package();
  std::vector<std::int32_t> package_of(host_of.size());
  comm.all_gather(&own, package_of.data(), comm.size(), DType::i32);
  return topology_of_hosts(host_of, package_of);
}

}  // namespace belay::comm
