#include "belay/train/layout_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "belay/base/error.h"
#include "belay/train/replicas.h"

namespace belay {
namespace {

constexpr int kStages = 4;

std::string refusal_of(const RunConfig& config, int ranks) {
  try {
    check_sharing(config, ranks);
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

// Ranks differ in their shards alone.
int rank_with_largest_shard(const RunConfig& config, const ParameterTable& table, int ranks) {
  int largest = 0;
  std::int64_t most = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::int64_t elements =
        ShardMap(table, sharding_of(config, rank, ranks)).shard_elements();
    if (elements <= most) continue;
    most = elements;
    largest = rank;
  }
  return largest;
}

LayoutPlan plan_layout(const RunSetup& setup, int ranks, int zero) {
  RunConfig config = setup.config;
  config.parallel.zero = zero;
  LayoutPlan plan{zero, refusal_of(config, ranks), {}};
  if (!plan.refused.empty()) return plan;
  const int largest = rank_with_largest_shard(config, setup.table, ranks);
  ProgramConfig program = program_config(setup);
  program.shard = sharding_of(config, largest, ranks);
  const std::size_t exchange = exchange_bytes_of(config, setup.table, largest, ranks);
  plan.memory = dry_step(*setup.device, setup.table, program, exchange).memory;
  return plan;
}

// Classes that any layout has, in the order of the plan.
std::vector<std::string> classes_of(const std::vector<LayoutPlan>& layouts) {
  std::vector<std::string> names;
  for (const LayoutPlan& layout : layouts) {
    auto at = names.begin();
    for (const MemoryItem& item : layout.memory) {
      const auto found = std::find(names.begin(), names.end(), item.name);
      at = (found == names.end() ? names.insert(at, item.name) : found) + 1;
    }
  }
  return names;
}

}  // namespace

std::size_t LayoutPlan::of(const std::string& name) const {
  const auto found = std::find_if(memory.begin(), memory.end(),
                                  [&](const MemoryItem& item) { return item.name == name; });
  return found == memory.end() ? 0 : found->bytes;
}

std::size_t LayoutPlan::total() const {
  std::size_t total = 0;
  for (const MemoryItem& item : memory) total += item.bytes;
  return total;
}

std::vector<LayoutPlan> plan_layouts(const RunSetup& setup, int ranks) {
  std::vector<LayoutPlan> layouts;
  for (int zero = 0; zero < (ranks == 1 ? 1 : kStages); ++zero) {
    layouts.push_back(plan_layout(setup, ranks, zero));
  }
  return layouts;
}

std::string layout_table(const std::vector<LayoutPlan>& layouts, int ranks,
                         std::int64_t configured) {
  std::string text;
  const auto line = [&](const std::string& name, const auto& cell_of) {
    text += fmt::format("\n{:<24}", name);
    for (const LayoutPlan& layout : layouts) {
      if (layout.refused.empty()) text += fmt::format(" {:>12}", cell_of(layout));
    }
  };
  const auto bytes = [](std::size_t count) { return human_bytes(static_cast<double>(count)); };
  if (ranks == 1) {
    text = "memory of the run:";
  } else {
    text = fmt::format("memory of each of {} ranks:", ranks);
    line("parallel.zero", [&](const LayoutPlan& layout) {
      return fmt::format("{}{}", layout.zero == configured ? "*" : "", layout.zero);
    });
  }
  for (const std::string& name : classes_of(layouts)) {
    line(name, [&](const LayoutPlan& layout) { return bytes(layout.of(name)); });
  }
  line("total", [&](const LayoutPlan& layout) { return bytes(layout.total()); });
  text += "\n";
  for (const LayoutPlan& layout : layouts) {
    if (layout.refused.empty()) continue;
    text += fmt::format("not with parallel.zero = {}: {}\n", layout.zero, layout.refused);
  }
  return text;
}

std::string layouts_to_json(const std::vector<LayoutPlan>& layouts, int ranks,
                            std::int64_t configured) {
  using Json = nlohmann::ordered_json;
  Json document = {{"ranks", ranks}, {"zero", configured}};
  for (const LayoutPlan& layout : layouts) {
    if (!layout.refused.empty()) {
      document["layouts"].push_back({{"zero", layout.zero}, {"refused", layout.refused}});
      continue;
    }
    Json memory = Json::object();
    for (const MemoryItem& item : layout.memory) memory[item.name] = item.bytes;
    document["layouts"].push_back(
        {{"zero", layout.zero}, {"bytes", layout.total()}, {"memory", memory}});
  }
  return document.dump(2) + "\n";
}

}  // namespace belay
