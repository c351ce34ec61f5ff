// belay plan: the memory that a run will take, of each rank and by class; runs nothing.

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "belay/cli/commands.h"
#include "belay/cli/options.h"
#include "belay/train/layout_plan.h"

namespace belay {
namespace {

struct Arguments {
  std::string config;
  std::vector<std::string> overrides;
  int ranks = 1;
  bool json = false;
};

void run(const Arguments& arguments) {
  const RunSetup setup =
      set_up_run(load_config(arguments.config, arguments.overrides, arguments.ranks));
  const std::vector<LayoutPlan> layouts = plan_layouts(setup, arguments.ranks);
  const auto text = arguments.json ? layouts_to_json : layout_table;
  fmt::print("{}", text(layouts, arguments.ranks, setup.config.parallel.zero));
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
      "With several ranks, one column for each value of parallel.zero that train takes; * marks "
      "the\n"
      "configured one.");
  command->callback([a] { run(*a); });
}

}  // namespace belay
