#include "belay/comm/collective.h"

#include <fmt/format.h>

#include <array>

#include "belay/comm/choice.h"

namespace belay::comm {
namespace {

constexpr std::array<std::string_view, kCollectives> kCollectiveNames = {
    "all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "all_to_all", "barrier"};
constexpr std::array<std::string_view, 5> kOpNames = {"sum", "prod", "min", "max", "avg"};

template <class Enum, std::size_t N>
std::optional<Enum> find(const std::array<std::string_view, N>& names, std::string_view name) {
  for (std::size_t index = 0; index < N; ++index) {
    if (names[index] == name) return static_cast<Enum>(index);
  }
  return std::nullopt;
}

}  // namespace

std::string_view name_of(Collective collective) {
  const auto index = static_cast<std::size_t>(collective);
  return index < kCollectiveNames.size() ? kCollectiveNames[index] : "unknown collective";
}

std::string_view name_of(ReduceOp op) {
  const auto index = static_cast<std::size_t>(op);
  return index < kOpNames.size() ? kOpNames[index] : "unknown operation";
}

std::optional<Collective> parse_collective(std::string_view name) {
  return find<Collective>(kCollectiveNames, name);
}

std::optional<ReduceOp> parse_reduce_op(std::string_view name) {
  return find<ReduceOp>(kOpNames, name);
}

std::string to_string(const Signature& signature) {
  std::string text = fmt::format("{} #{}", name_of(signature.collective), signature.sequence);
  if (signature.algorithm == kExchange) {
    return fmt::format("link test #{} (of {} bytes)", signature.sequence, signature.count);
  }
  if (signature.collective == Collective::barrier) {
    return signature.count == 0 ? text : text + fmt::format(" (for {} bytes)", signature.count);
  }
  text += " (";
  if (reduces(signature.collective)) text += fmt::format("{} of ", name_of(signature.op));
  text += fmt::format("{} {}", signature.count, belay::name_of(signature.dtype));
  if (has_root(signature.collective)) text += fmt::format(", root {}", signature.root);
  text += signature.algorithm == kOwnSchedule
              ? std::string(", by a schedule of its own")
              : fmt::format(", by {}", to_string(choice_of(signature)));
  if (signature.epoch > 0) text += fmt::format(", epoch {}", signature.epoch);
  text += ")";
  return text;
}

}  // namespace belay::comm
