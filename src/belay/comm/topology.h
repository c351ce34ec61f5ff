#pragma once
// Where the ranks are: on which host, and in which domain of fast links. A rank map says so, or
// MPI (hosts) and hwloc (processor packages that ranks are bound to).

#include <string>
#include <vector>

#include "belay/comm/communicator.h"
#include "belay/comm/rank_map.h"

namespace belay::comm {

struct Topology {
  std::vector<int> host_of;    // of each rank
  std::vector<int> domain_of;  // of each rank; a domain lies on one host
  std::string source;          // what the domains are: "hosts", "packages", "rank map PATH"

  [[nodiscard]] int hosts() const;
  [[nodiscard]] int domains() const;
  // Domains, and a ring that enters every host and every domain once, whatever the order in which
  // ranks were started.
  [[nodiscard]] Layout layout() const;
  // "4 ranks on 2 hosts, 2 domains (hosts): 0 2 | 1 3", at most 64 ranks one by one.
  [[nodiscard]] std::string to_text() const;
};

// package_of: as bound_package() says of each rank. A host whose ranks are not all bound to a
// package is one domain.
Topology topology_of_hosts(const std::vector<int>& host_of, const std::vector<int>& package_of);

// Domains are numbered from 0 in the order of ranks, whatever the map calls them. Error(data) when
// the map is for another number of ranks or a domain of it reaches over several hosts; with a map
// that works, if there is one for ranks that lie so. path: for messages.
Topology topology_of_map(const RankMap& map, const std::vector<int>& host_of,
                         const std::string& path);

// By MPI's hosts and hwloc. A collective call.
Topology find_topology(Communicator& comm, const std::vector<int>& host_of);

}  // namespace belay::comm
