#include "belay/comm/comm_config.h"

#include <string_view>

namespace belay::comm {
namespace {

// In the order of ChooserKind.
constexpr std::string_view kChoosers[] = {"model", "size", "doubling-tree-ring",
                                          "ring-tree-hierarchical"};

}  // namespace

std::string_view name_of(ChooserKind kind) {
  return kChoosers[static_cast<std::size_t>(kind)];
}

std::span<const config::Field> CommConfig::fields() {
  using config::between;
  using config::field;
  static const config::Field kFields[] = {
      field<&CommConfig::timeout_s>(
          "timeout_s", "seconds after which a rank that others wait for counts as lost",
          between(0.1, 86400)),
      field<&CommConfig::bucket_mb>("bucket_mb", "MB of gradients that are summed together",
                                    between(0.001, 4096)),
      field<&CommConfig::buckets>("buckets", "buckets that may be under way at once",
                                  between(1, 1024)),
      field<&CommConfig::overlap>("overlap", "sum gradients while backward runs; false: after it"),
      field<&CommConfig::order_stable>("order_stable",
                                       "the same bits for every algorithm, size of bucket and "
                                       "power of two of ranks, at some cost"),
      field<&CommConfig::chooser>(
          "chooser",
          "how algorithms are chosen: model measures the links at start, the others go by size",
          config::one_of(kChoosers)),
      field<&CommConfig::force>(
          "force", "choices to force, as in 'all_reduce:0-65536=direct; broadcast=chain x16'"),
      field<&CommConfig::rank_map>(
          "rank_map",
          "file of rank_id,npu_id,hccs_domain: which ranks share fast links; empty: found out"),
      field<&CommConfig::inject>(
          "inject",
          "faults to inject, for tests, as in 'link 0-1 bandwidth=1e8 from=100; rank 2 "
          "kill@call=20'"),
  };
  return kFields;
}

std::vector<ForcedChoice> forced_choices(const CommConfig& config) {
  std::vector<ForcedChoice> forced;
  std::string_view rest = config.force;
  while (!rest.empty()) {
    const std::size_t end = rest.find(';');
    std::string_view part = rest.substr(0, end);
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
    while (!part.empty() && part.front() == ' ') part.remove_prefix(1);
    while (!part.empty() && part.back() == ' ') part.remove_suffix(1);
    if (!part.empty()) forced.push_back(parse_forced(part));
  }
  return forced;
}

}  // namespace belay::comm
