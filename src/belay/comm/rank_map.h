#pragma once
// The rank map: which rank runs on which device, and in which domain of fast links that is. CSV
// with a heading:
//
//   rank_id,npu_id,hccs_domain
//   0,0,0
//   1,1,0
//
// Ranks of a domain must be neighbours in the order of ranks: then a ring crosses into every domain
// once, and collectives by domain send the least between them.

#include <string>
#include <string_view>
#include <vector>

#include "belay/comm/algorithm.h"

namespace belay::comm {

struct RankMapEntry {
  int npu = 0;
  int domain = 0;
};

struct RankMap {
  std::vector<RankMapEntry> entries;  // of each rank

  [[nodiscard]] int ranks() const { return static_cast<int>(entries.size()); }
  // Domains for schedules.
  [[nodiscard]] Layout layout() const;
  // As the file has it.
  [[nodiscard]] std::string to_csv() const;
};

// source: for messages. Error(data) for what is not a rank map of ranks 0 .. n-1, each once, each
// device once; and for one that tears a domain apart, with the map that does not.
RankMap parse_rank_map(std::string_view text, std::string_view source);
RankMap read_rank_map(const std::string& path);

// Whether ranks of some domain are not neighbours.
bool tears_a_domain(const RankMap& map);

// The same devices, with ranks counted up domain by domain (in the order in which domains appear)
// and within a domain by device.
RankMap corrected(const RankMap& map);

}  // namespace belay::comm
