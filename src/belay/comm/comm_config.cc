#include "belay/comm/comm_config.h"

#include <string_view>

namespace belay::comm {

std::span<const config::Field> CommConfig::fields() {
  using config::field;
  static constexpr std::string_view kChoosers[] = {"model", "size", "doubling-tree-ring",
                                                   "ring-tree-hierarchical"};
  static const config::Field kFields[] = {
      field<&CommConfig::timeout_s>(
          "timeout_s", "seconds without progress after which a missing rank is reported",
          config::positive()),
      field<&CommConfig::order_stable>(
          "order_stable",
          "sums with the same bits for every algorithm, bucket size and order of ranks"),
      field<&CommConfig::chooser>(
          "chooser",
          "how algorithms are chosen: model measures the links at start, the others go by size",
          config::one_of(kChoosers)),
      field<&CommConfig::force>(
          "force", "choices to force, as in 'all_reduce:0-65536=direct; broadcast=chain x16'"),
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
