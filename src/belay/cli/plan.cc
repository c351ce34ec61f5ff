// belay plan: the memory that a run will take, of each rank and by class; runs nothing.

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <memory>
#include <nlohmann/json.hpp>

#include "belay/cli/commands.h"
#include "belay/cli/options.h"
#include "belay/train/replicas.h"
#include "belay/train/run_setup.h"

namespace belay {
namespace {

constexpr int kStages = 4;

struct Arguments {
  std::string config;
  std::vector<std::string> overrides;
  int ranks = 1;
  bool json = false;
};

// What one layout of the state takes.
struct Layout {
  int zero = 0;
  std::vector<MemoryItem> memory;

  [[nodiscard]] std::size_t of(const std::string& name) const {
    const auto found = std::find_if(memory.begin(), memory.end(),
                                    [&](const MemoryItem& item) { return item.name == name; });
    return found == memory.end() ? 0 : found->bytes;
  }
  [[nodiscard]] std::size_t total() const {
    std::size_t total = 0;
    for (const MemoryItem& item : memory) total += item.bytes;
    return total;
  }
};

// That of the rank which takes most.
Layout largest_layout(const RunSetup& setup, int ranks, int zero) {
  RunConfig config = setup.config;
  config.parallel.zero = zero;
  // Ranks differ in their shards alone.
  int largest = 0;
  std::int64_t most = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const ShardOptions shard = sharding_of(config, rank, ranks);
    const std::int64_t elements = ShardMap(setup.table, shard).shard_elements();
    if (elements <= most) continue;
    most = elements;
    largest = rank;
  }
  ProgramConfig program = program_config(setup);
  program.shard = sharding_of(config, largest, ranks);
  const std::size_t exchange = exchange_bytes_of(config, setup.table, largest, ranks);
  return {zero, dry_step(*setup.device, setup.table, program, exchange).memory};
}

// Classes that any layout has, in the order of the plan.
std::vector<std::string> classes_of(const std::vector<Layout>& layouts) {
  std::vector<std::string> names;
  for (const Layout& layout : layouts) {
    auto at = names.begin();
    for (const MemoryItem& item : layout.memory) {
      const auto found = std::find(names.begin(), names.end(), item.name);
      at = (found == names.end() ? names.insert(at, item.name) : found) + 1;
    }
  }
  return names;
}

void print(const std::vector<Layout>& layouts, int ranks, std::int64_t configured) {
  if (ranks == 1) {
    fmt::print("memory of the run:");
  } else {
    fmt::print("memory of each of {} ranks:\n{:<24}", ranks, "parallel.zero");
    for (const Layout& layout : layouts) {
      fmt::print(" {:>12}", fmt::format("{}{}", layout.zero == configured ? "*" : "", layout.zero));
    }
  }
  const auto line = [&](const std::string& name, auto&& bytes_of) {
    fmt::print("\n{:<24}", name);
    for (const Layout& layout : layouts) {
      fmt::print(" {:>12}", human_bytes(static_cast<double>(bytes_of(layout))));
    }
  };
  for (const std::string& name : classes_of(layouts)) {
    line(name, [&](const Layout& layout) { return layout.of(name); });
  }
  line("total", [](const Layout& layout) { return layout.total(); });
  fmt::print("\n");
}

void print_json(const std::vector<Layout>& layouts, int ranks, std::int64_t configured) {
  nlohmann::ordered_json document = {{"ranks", ranks}, {"zero", configured}};
  for (const Layout& layout : layouts) {
    nlohmann::ordered_json memory = nlohmann::ordered_json::object();
    for (const MemoryItem& item : layout.memory) memory[item.name] = item.bytes;
    document["layouts"].push_back(
        {{"zero", layout.zero}, {"bytes", layout.total()}, {"memory", memory}});
  }
  fmt::print("{}\n", document.dump(2));
}

void run(const Arguments& arguments) {
  const RunSetup setup =
      set_up_run(load_config(arguments.config, arguments.overrides, arguments.ranks));
  std::vector<Layout> layouts;
  for (int zero = 0; zero < (arguments.ranks == 1 ? 1 : kStages); ++zero) {
    layouts.push_back(largest_layout(setup, arguments.ranks, zero));
  }
  const std::int64_t configured = setup.config.parallel.zero;
  if (arguments.json) return print_json(layouts, arguments.ranks, configured);
  print(layouts, arguments.ranks, configured);
}

}  // namespace

void add_plan(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("plan", "Memory that a run will take, of each rank; runs nothing");
  const auto a = std::make_shared<Arguments>();
  command->add_option("config", a->config, "TOML file, as for train")->required();
  command->add_option("--set", a->overrides, "section.key=value; may be given several times")
      ->take_all();
  command->add_option("--ranks", a->ranks, "Processes that mpirun would start")
      ->check(above_zero())
      ->capture_default_str();
  command->add_flag("--json", a->json, "Print one JSON object");
  command->footer(
      "Examples:\n"
      "  belay plan config.toml\n"
      "  belay plan config.toml --ranks 8 --set train.dtype=bf16\n"
      "With several ranks, one column for each value of parallel.zero; * marks the configured "
      "one.");
  command->callback([a] { run(*a); });
}

}  // namespace belay
