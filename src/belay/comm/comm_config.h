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

enum class Compression : std::uint8_t { none, topk, int8, topk_int8 };
enum class CompressionLevel : std::uint8_t { all, slow };
enum class CompressionWhen : std::uint8_t { pays, always };

struct CommConfig {
  double timeout_s = 600;
  double bucket_mb = 25;
  std::int64_t buckets = 4;
  bool overlap = true;
  std::int64_t pipeline_depth = 0;
  bool order_stable = false;
  ChooserKind chooser = ChooserKind::size;
  bool watch_links = true;
  double slow_link = 2;
  bool reform = true;
  std::string force;     // as parse_forced() takes them, separated by ';'
  std::string rank_map;  // a file, see rank_map.h; empty: domains are found out
  std::string inject;    // faults, as FaultScript reads them

  Compression compression = Compression::none;
  double topk_ratio = 0.25;
  double compression_min_sparsity = 0.1;
  CompressionLevel compression_level = CompressionLevel::all;
  CompressionWhen compression_when = CompressionWhen::pays;
  std::int64_t compression_warmup = 0;  // steps

  static constexpr std::string_view kSection = "comm";
  static std::span<const config::Field> fields();
};

std::string_view name_of(ChooserKind kind);
std::string_view name_of(Compression compression);
std::string_view name_of(CompressionLevel level);
std::string_view name_of(CompressionWhen when);

constexpr bool takes_top_k(Compression compression) {
  return compression == Compression::topk || compression == Compression::topk_int8;
}

// Error(usage) for settings that cannot go together.
void check_comm(const CommConfig& config);

// Error(usage) if `force` is not understood.
std::vector<ForcedChoice> forced_choices(const CommConfig& config);

}  // namespace belay::comm
