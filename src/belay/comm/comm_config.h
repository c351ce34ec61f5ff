#pragma once
// [comm]: how ranks exchange data.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "belay/base/config.h"
#include "belay/comm/choice.h"

namespace belay::comm {

enum class ChooserKind : std::uint8_t { model, size, doubling_tree_ring, ring_tree_hierarchical };

struct CommConfig {
  double timeout_s = 600;
  double bucket_mb = 25;
  std::int64_t buckets = 4;
  bool overlap = true;
  bool order_stable = false;
  ChooserKind chooser = ChooserKind::size;
  std::string force;     // as parse_forced() takes them, separated by ';'
  std::string rank_map;  // a file, see rank_map.h; empty: domains are found out
  std::string inject;    // faults, as FaultScript reads them

  static constexpr std::string_view kSection = "comm";
  static std::span<const config::Field> fields();
};

std::string_view name_of(ChooserKind kind);

// Error(usage) if `force` is not understood.
std::vector<ForcedChoice> forced_choices(const CommConfig& config);

}  // namespace belay::comm
