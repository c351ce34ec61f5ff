// belay bench stress: what becomes of f16 training when gradients grow.

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "belay/base/error.h"
#include "belay/base/log.h"
#include "belay/cli/bench.h"
#include "belay/train/stress.h"

namespace belay {
namespace {

struct Arguments {
  std::string scenario = "all";
  std::int64_t steps = 2000;
  std::uint64_t seed = 1;
  bool json = false;
};

constexpr StressProtection kRuns[] = {StressProtection::f32, StressProtection::plain,
                                      StressProtection::scaler, StressProtection::guard};

std::vector<StressScenario> wanted_scenarios(const std::string& text) {
  const auto one = parse_stress_scenario(text);
  if (one) return {*one};
  std::vector<StressScenario> all;
  for (const std::string_view name : stress_scenario_names()) {
    all.push_back(*parse_stress_scenario(name));
  }
  if (text == "all") return all;
  fail(ExitCode::usage, "--scenario {}: choose one of {} or all", text,
       fmt::join(stress_scenario_names(), ", "));
}

// How much larger than that of f32.
double excess(const StressResult& result, const StressResult& f32) {
  return result.perplexity / f32.perplexity - 1;
}

nlohmann::ordered_json number(double value) {
  return std::isfinite(value) ? nlohmann::ordered_json(value) : nullptr;
}

nlohmann::ordered_json json_of(const Arguments& a, StressScenario scenario, StressProtection run,
                               const StressResult& result, const StressResult& f32) {
  return {{"scenario", name_of(scenario)},
          {"run", name_of(run)},
          {"dtype", run == StressProtection::f32 ? "f32" : "f16"},
          {"steps", a.steps},
          {"survived", result.survived},
          {"died", result.survived < a.steps},
          {"skipped", result.skipped},
          {"first_skip", result.first_skip},
          {"lowered", result.lowered},
          {"lowest_scale", result.lowest_scale},
          {"last_scale", result.last_scale},
          {"val_loss", number(result.val_loss)},
          {"perplexity", number(result.perplexity)},
          {"perplexity_against_f32", number(excess(result, f32))}};
}

void print(const Arguments& a, StressScenario scenario, StressProtection run,
           const StressResult& result, const StressResult& f32) {
  fmt::print("{:10} {:7} {:>9} {:>8} {:>8} {:>9.4f} {:>10.4f} {:>+8.2f}%  {}\n", name_of(scenario),
             name_of(run), result.survived, result.skipped, result.lowered, result.val_loss,
             result.perplexity, 100 * excess(result, f32),
             result.survived < a.steps ? "died" : "survived");
  std::fflush(stdout);
}

void run(const Arguments& a) {
  if (a.steps < kFewestStressSteps) {
    fail(ExitCode::usage, "--steps {} is too short for the scripts; give at least {}", a.steps,
         kFewestStressSteps);
  }
  const std::vector<StressScenario> scenarios = wanted_scenarios(a.scenario);
  if (!a.json) {
    fmt::print("{:10} {:7} {:>9} {:>8} {:>8} {:>9} {:>10} {:>9}\n", "scenario", "run", "survived",
               "skipped", "lowered", "val loss", "perplexity", "to f32");
  }
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const StressScenario scenario : scenarios) {
    StressResult f32;
    for (const StressProtection protection : kRuns) {
      StressOptions options;
      options.steps = a.steps;
      options.seed = a.seed;
      options.progress = [&](std::int64_t step) {
        if (step % 500 == 0) {
          log::info("{}, {}: step {} of {}", name_of(scenario), name_of(protection), step, a.steps);
        }
      };
      const StressResult result = run_stress(scenario, protection, options);
      if (protection == StressProtection::f32) f32 = result;
      if (a.json) {
        rows.push_back(json_of(a, scenario, protection, result, f32));
      } else {
        print(a, scenario, protection, result, f32);
      }
    }
  }
  if (a.json) fmt::print("{}\n", rows.dump(2));
}

}  // namespace

void add_bench_stress(CLI::App& bench) {
  CLI::App* command = bench.add_subcommand(
      "stress",
      "Train a small model in f16 while its gradients grow: without loss scaling, with "
      "the usual scaler, with the guard, against f32");
  const auto a = std::make_shared<Arguments>();
  command
      ->add_option("--scenario", a->scenario,
                   fmt::format("One of {}, or all", fmt::join(stress_scenario_names(), ", ")))
      ->capture_default_str();
  command->add_option("--steps", a->steps, fmt::format("At least {}", kFewestStressSteps))
      ->capture_default_str();
  command->add_option("--seed", a->seed, "Of weights and data")->capture_default_str();
  command->add_flag("--json", a->json, "Print JSON");
  command->footer("Example:\n  belay bench stress --scenario spike --json");
  command->callback([a] { run(*a); });
}

}  // namespace belay
