// belay bench ops: the fused operators against the machine's own memory and arithmetic.

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "belay/base/error.h"
#include "belay/base/parallel.h"
#include "belay/cli/bench.h"
#include "belay/cli/options.h"
#include "belay/device/ops_bench.h"

namespace belay {
namespace {

struct Options {
  std::string op;
  std::string dtype = "all";
  bool characteristics = false;
  std::string model = "gpt2-124m";
  std::int64_t batch = 4;
  std::int64_t seq_len = 256;
  bool json = false;
};

std::vector<DType> wanted_dtypes(const std::string& text) {
  if (text == "all") return {DType::f32, DType::bf16, DType::f16};
  const auto dtype = parse_dtype(text);
  if (dtype && is_storage(*dtype)) return {*dtype};
  fail(ExitCode::usage, "--dtype {}: choose f32, bf16, f16 or all", text);
}

void check_op(const std::string& op) {
  const auto names = benched_ops();
  if (op.empty() || std::find(names.begin(), names.end(), op) != names.end()) return;
  std::string valid;
  for (const std::string_view name : names) {
    valid += (valid.empty() ? "" : ", ") + std::string(name);
  }
  fail(ExitCode::usage, "--op {}: no such operator; choose one of {}", op, valid);
}

nlohmann::json json_of(const MachineRates& rates) {
  return {{"memory_bytes_per_s", rates.memory_bytes_per_s},
          {"read_bytes_per_s", rates.read_bytes_per_s},
          {"copy_bytes_per_s", rates.copy_bytes_per_s},
          {"triad_bytes_per_s", rates.triad_bytes_per_s},
          {"gemm_f32_flops_per_s", rates.gemm_f32_flops_per_s},
          {"gemm_bf16_flops_per_s", rates.gemm_bf16_flops_per_s}};
}

// plain_us is null for operators that are plain ones themselves.
nlohmann::ordered_json json_of(const OpTiming& timing) {
  const bool fused = timing.plain_seconds > 0;
  nlohmann::ordered_json row = {{"op", timing.op},
                                {"shape", timing.shape},
                                {"dtype", name_of(timing.dtype)},
                                {"time_us", timing.seconds * 1e6},
                                {"plain_us", nullptr},
                                {"flops", timing.cost.flops},
                                {"bytes", timing.cost.bytes},
                                {"bound", timing.memory_bound ? "memory" : "compute"},
                                {"fraction_of_bound", timing.fraction_of_bound()},
                                {"kernel", timing.kernel},
                                {"gflops_per_s", timing.cost.flops / timing.seconds * 1e-9},
                                {"gb_per_s", timing.cost.bytes / timing.seconds * 1e-9},
                                {"peak_bytes", timing.peak_bytes},
                                {"plain_peak_bytes", nullptr}};
  if (fused) row["plain_us"] = timing.plain_seconds * 1e6;
  if (fused) row["plain_peak_bytes"] = timing.plain_peak_bytes;
  return row;
}

void print_row(const OpTiming& timing) {
  const std::string plain =
      timing.plain_seconds > 0 ? fmt::format("{:.0f}", timing.plain_seconds * 1e6) : "-";
  const std::string ratio =
      timing.plain_seconds > 0 ? fmt::format("{:.2f}", timing.plain_seconds / timing.seconds) : "-";
  fmt::print("{:20} {:32} {:4} {:>9.0f} {:>9} {:>6} {:>8.1f} {:>7.1f} {:>8.1f}  {:7} {:>5.2f}\n",
             timing.op, timing.shape, name_of(timing.dtype), timing.seconds * 1e6, plain, ratio,
             timing.cost.bytes * 1e-6, timing.cost.bytes / timing.seconds * 1e-9,
             timing.cost.flops / timing.seconds * 1e-9, timing.memory_bound ? "memory" : "compute",
             timing.fraction_of_bound());
  std::fflush(stdout);
}

void run(const Options& options) {
  if (options.characteristics) {
    if (!options.op.empty())
      fail(ExitCode::usage, "--characteristics shows all operators; drop --op");
    const std::string dtype = options.dtype == "all" ? "f32" : options.dtype;
    return bench_characteristics(
        {options.model, options.batch, options.seq_len, parse_compute_dtype(dtype), options.json});
  }
  const std::vector<DType> dtypes = wanted_dtypes(options.dtype);
  check_op(options.op);
  const MachineRates rates = measure_rates();
  if (!options.json) {
    fmt::print("{} threads; memory {:.1f} GB/s, matrix products {:.0f} GFLOP/s f32, {:.0f} bf16\n",
               thread_count(), rates.memory_bytes_per_s * 1e-9, rates.gemm_f32_flops_per_s * 1e-9,
               rates.gemm_bf16_flops_per_s * 1e-9);
    fmt::print("{:20} {:32} {:4} {:>9} {:>9} {:>6} {:>8} {:>7} {:>8}  {:7} {:>5}\n", "op", "shape",
               "type", "time us", "plain us", "ratio", "MB", "GB/s", "GFLOP/s", "bound", "of it");
  }
  nlohmann::ordered_json results = nlohmann::ordered_json::array();
  bench_ops(options.op, dtypes, rates, [&](const OpTiming& timing) {
    options.json ? results.push_back(json_of(timing)) : print_row(timing);
  });
  if (options.json) {
    const nlohmann::ordered_json document = {
        {"threads", thread_count()}, {"rates", json_of(rates)}, {"ops", results}};
    fmt::print("{}\n", document.dump(2));
  }
}

}  // namespace

void add_bench_ops(CLI::App& bench) {
  CLI::App* command = bench.add_subcommand(
      "ops", "Time every fused operator against the measured roofline of this machine");
  const auto options = std::make_shared<Options>();
  command->add_option("--op", options->op, "One operator only, as norm_forward");
  command->add_option("--dtype", options->dtype, "Storage type: f32, bf16, f16 or all")
      ->capture_default_str();
  command->add_flag("--characteristics", options->characteristics,
                    "Instead: FLOPs, bytes, intensity, bound, unit and share of every operator of "
                    "a model's step");
  command->add_option("--model", options->model, "For --characteristics")->capture_default_str();
  command->add_option("--batch", options->batch, "For --characteristics: rows")
      ->check(above_zero())
      ->capture_default_str();
  command->add_option("--seq", options->seq_len, "For --characteristics: tokens per row")
      ->check(above_zero())
      ->capture_default_str();
  command->add_flag("--json", options->json, "Print one JSON document");
  command->footer(
      "`of it` is the time that the roofline allows over the time taken. The roofline's sides are\n"
      "the memory bandwidth and the matrix-product rate measured at the start of the same run.\n"
      "`plain us` is the time of the same mathematics as separate plain operators, `ratio` that "
      "over\n"
      "the fused operator's.\n"
      "Examples:\n"
      "  belay bench ops --op adamw --json\n"
      "  belay bench ops --characteristics --model gpt2-124m --dtype bf16");
  command->callback([options] { run(*options); });
}

}  // namespace belay
