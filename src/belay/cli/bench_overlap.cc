// belay bench overlap: the share of communication that computing hides.

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "belay/base/check.h"
#include "belay/cli/bench.h"
#include "belay/cli/options.h"
#include "belay/cli/report.h"
#include "belay/comm/comm_config.h"
#include "belay/model/model_config.h"
#include "belay/train/overlap_bench.h"

namespace belay {
namespace {

struct Arguments {
  OverlapBench bench;
  int ranks = 2;
  bool json = false;
};

// The range that [comm] gives a key; an option is never off.
CLI::Range range_of(std::string_view key, double least = 0) {
  const auto fields = comm::CommConfig::fields();
  const auto found = std::find_if(fields.begin(), fields.end(),
                                  [&](const config::Field& field) { return field.name == key; });
  BELAY_CHECK(found != fields.end());
  return {std::max(least, found->rule.low), found->rule.high};
}

void print_json(const OverlapReport& report, const Arguments& a) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const OverlapRow& row : report.rows) {
    rows.push_back({{"mode", row.mode},
                    {"bandwidth", row.bandwidth},
                    {"bytes", row.bytes},
                    {"compute_ms", row.compute_ms},
                    {"step_ms", row.step_ms},
                    {"comm_ms", row.comm_ms},
                    {"exposed_ms", row.exposed_ms},
                    {"waited_ms", row.waited_ms},
                    {"hidden", row.hidden},
                    {"hidden_of_each", row.hidden_of_each}});
  }
  const nlohmann::ordered_json object = {
      {"ranks", report.ranks},           {"model", a.bench.model},
      {"parameters", report.parameters}, {"rows_per_micro_batch", a.bench.rows},
      {"seq", a.bench.seq_len},          {"micro_batches", a.bench.micro_batches},
      {"depth", a.bench.depth},          {"rows", rows}};
  fmt::print("{}\n", object.dump(1));
}

void run(comm::World& world, const Arguments& a) {
  const OverlapReport report = bench_overlap(world, a.ranks, a.bench);
  if (world.rank() > 0) return;
  if (a.json) return print_json(report, a);
  fmt::print("{} ranks, {} parameters, {} micro-batches of {} tokens; times in ms\n", report.ranks,
             report.parameters, a.bench.micro_batches, a.bench.rows * a.bench.seq_len);
  fmt::print("{:<26} {:>10} {:>9} {:>9} {:>9} {:>9} {:>9} {:>8}\n", "gradients are exchanged",
             "link MB/s", "compute", "step", "comm", "exposed", "waited", "hidden");
  for (const OverlapRow& row : report.rows) {
    fmt::print("{:<26} {:>10.1f} {:>9.1f} {:>9.1f} {:>9.1f} {:>9.1f} {:>9.1f} {:>7.1f}%\n",
               row.mode, row.bandwidth * 1e-6, row.compute_ms, row.step_ms, row.comm_ms,
               row.exposed_ms, row.waited_ms, 100 * row.hidden);
  }
}

}  // namespace

void add_bench_overlap(CLI::App& bench) {
  CLI::App* command = bench.add_subcommand(
      "overlap", "The share of communication that computing hides, on slowed links");
  auto a = std::make_shared<Arguments>();
  command
      ->add_option("--model", a->bench.model,
                   fmt::format("One of {}", fmt::join(preset_names(), ", ")))
      ->capture_default_str();
  command->add_option("--batch", a->bench.rows, "Rows of a micro-batch")
      ->check(above_zero())
      ->capture_default_str();
  command->add_option("--seq", a->bench.seq_len, "Tokens per row")
      ->check(above_zero())
      ->capture_default_str();
  command->add_option("--micro-batches", a->bench.micro_batches, "Per rank and step")
      ->check(above_zero())
      ->capture_default_str();
  command->add_option("--bucket-mb", a->bench.bucket_mb, "As [comm] bucket_mb")
      ->check(range_of("bucket_mb"))
      ->capture_default_str();
  command->add_option("--depth", a->bench.depth, "As [comm] pipeline_depth")
      ->check(range_of("pipeline_depth", 1))
      ->capture_default_str();
  command->add_option("--repetitions", a->bench.repetitions, "Steps of each kind, in alternation")
      ->check(above_zero())
      ->capture_default_str();
  command->add_option("--matmul", a->bench.matmul, "One candidate for all products, or auto")
      ->capture_default_str();
  command->add_option("--ranks", a->ranks, "Without mpirun: ranks that are threads")
      ->check(CLI::Range(2, 64))
      ->capture_default_str();
  command->add_flag("--json", a->json, "Print JSON");
  command->footer(
      "The links are slowed until the exchange takes as long as computing.\n"
      "Example:\n  mpirun -n 2 belay bench overlap");
  command->callback([a] { as_rank({}, [&](comm::World& world) { run(world, *a); }); });
}

}  // namespace belay
