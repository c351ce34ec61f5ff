// belay bench memory: what a training step holds, with fused operators and with plain ones.

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "belay/base/error.h"
#include "belay/cli/bench.h"
#include "belay/cli/bench_program.h"
#include "belay/cli/options.h"
#include "belay/train/plain_memory.h"
#include "belay/train/planning.h"

namespace belay {
namespace {

struct Arguments {
  std::string model = "gpt2-124m";
  std::int64_t batch = 4;
  std::int64_t seq_len = 1024;
  std::string dtype = "f32";
  bool json = false;
};

struct Comparison {
  std::vector<MemoryItem> fused;  // by class
  std::vector<MemoryItem> more;   // what plain operators add
  std::size_t fused_total = 0;
  std::size_t plain_total = 0;

  [[nodiscard]] double saved() const {
    return 1.0 - static_cast<double>(fused_total) / static_cast<double>(plain_total);
  }
};

Comparison compare(const Arguments& arguments) {
  const ProgramConfig config = bench_program(arguments.model, arguments.batch, arguments.seq_len,
                                             parse_compute_dtype(arguments.dtype));
  const ParameterTable table = make_parameter_table(config.model);
  const auto device = make_device("cpu");
  const DryStep step = dry_step(*device, table, config);
  const PlainMemory plain = plain_memory(step.calls);
  Comparison result;
  result.fused = step.memory;
  result.more = {{"attention probabilities", plain.scores},
                 {"normalised values", plain.normalised},
                 {"inside activations", plain.activated},
                 {"temporaries", plain.temporaries}};
  for (const MemoryItem& item : result.fused) result.fused_total += item.bytes;
  result.plain_total = result.fused_total + plain.total();
  return result;
}

nlohmann::ordered_json json_of(const std::vector<MemoryItem>& items) {
  nlohmann::ordered_json object = nlohmann::ordered_json::object();
  for (const MemoryItem& item : items) object[item.name] = item.bytes;
  return object;
}

void print_items(const std::vector<MemoryItem>& items) {
  for (const MemoryItem& item : items) {
    fmt::print("  {:<24} {:>10}\n", item.name, human_bytes(static_cast<double>(item.bytes)));
  }
}

void run(const Arguments& arguments) {
  const Comparison result = compare(arguments);
  if (arguments.json) {
    const nlohmann::ordered_json document = {{"model", arguments.model},
                                             {"batch", arguments.batch},
                                             {"seq", arguments.seq_len},
                                             {"dtype", arguments.dtype},
                                             {"fused", json_of(result.fused)},
                                             {"plain_adds", json_of(result.more)},
                                             {"fused_bytes", result.fused_total},
                                             {"plain_bytes", result.plain_total},
                                             {"saved", result.saved()}};
    fmt::print("{}\n", document.dump(2));
    return;
  }
  fmt::print("{} {} x {} {}: a step with fused operators\n", arguments.model, arguments.batch,
             arguments.seq_len, arguments.dtype);
  print_items(result.fused);
  fmt::print("plain operators would add\n");
  print_items(result.more);
  fmt::print("fused {}, plain {}: {:.1f}% less\n",
             human_bytes(static_cast<double>(result.fused_total)),
             human_bytes(static_cast<double>(result.plain_total)), result.saved() * 100);
}

}  // namespace

void add_bench_memory(CLI::App& bench) {
  CLI::App* command = bench.add_subcommand(
      "memory", "Memory of a training step with fused operators against plain ones; runs nothing");
  const auto arguments = std::make_shared<Arguments>();
  command->add_option("--model", arguments->model, "Preset")->capture_default_str();
  command->add_option("--batch", arguments->batch, "Rows")
      ->check(above_zero())
      ->capture_default_str();
  command->add_option("--seq", arguments->seq_len, "Tokens per row")
      ->check(above_zero())
      ->capture_default_str();
  command->add_option("--dtype", arguments->dtype, "Compute type: f32, bf16 or f16")
      ->capture_default_str();
  command->add_flag("--json", arguments->json, "Print one JSON document");
  command->footer("Example: belay bench memory --model gpt2-124m --batch 4 --seq 1024");
  command->callback([arguments] { run(*arguments); });
}

}  // namespace belay
