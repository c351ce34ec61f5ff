#pragma once
// Where a rank stands among those that share its host's memory and processors.

#include <vector>

namespace belay {

struct HostPlace {
  int ranks = 1;  // on this host
  int rank = 0;   // which of them this one is
};

// host_of: the host of each rank.
inline HostPlace place_on_host(const std::vector<int>& host_of, int rank) {
  HostPlace place{0, 0};
  for (std::size_t other = 0; other < host_of.size(); ++other) {
    if (host_of[other] != host_of[static_cast<std::size_t>(rank)]) continue;
    ++place.ranks;
    if (other < static_cast<std::size_t>(rank)) ++place.rank;
  }
  return place;
}

}  // namespace belay
