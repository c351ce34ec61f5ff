// belay bench gemm: every matrix-product candidate on the shapes of a training step.

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "belay/base/error.h"
#include "belay/base/parallel.h"
#include "belay/cli/bench.h"
#include "belay/cli/options.h"
#include "belay/device/cpu/matmul/candidates.h"
#include "belay/device/matmul_tune.h"
#include "belay/machine/available_memory.h"

namespace belay {
namespace {

struct Options {
  std::vector<std::string> shapes;
  std::string model = "gpt2-124m";
  std::string dtype = "f32";
  std::string device = "cpu";
  std::int64_t tokens = 1024;
  std::int64_t head_rows = 512;
  double seconds = 1.0;
  int threads = 0;
  bool processor_time = false;
  bool json = false;
};

struct Entry {
  MatmulKey key;
  double count = 1;  // calls per training step
};

struct Linear {
  std::int64_t out, in;
  double count;
};

// Forward, gradient of the input and gradient of the weights of one linear layer.
void add_linear(std::vector<Entry>& entries, const Linear& linear, std::int64_t rows, DType dtype,
                DType out_type, bool bias) {
  entries.push_back(
      {{rows, linear.out, linear.in, dtype, out_type, false, true, false, bias}, linear.count});
  entries.push_back(
      {{rows, linear.in, linear.out, dtype, dtype, false, false, false, false}, linear.count});
  entries.push_back(
      {{linear.out, linear.in, rows, dtype, DType::f32, true, false, true, false}, linear.count});
}

std::vector<Entry> shapes_of_gpt2(std::int64_t tokens, std::int64_t head_rows, DType dtype) {
  constexpr std::int64_t kHidden = 768;
  constexpr std::int64_t kVocab = 50257;
  constexpr double kLayers = 12;
  std::vector<Entry> entries;
  for (const Linear& linear :
       {Linear{3 * kHidden, kHidden, kLayers}, Linear{kHidden, kHidden, kLayers},
        Linear{4 * kHidden, kHidden, kLayers}, Linear{kHidden, 4 * kHidden, kLayers}}) {
    add_linear(entries, linear, tokens, dtype, dtype, true);
  }
  const double parts = static_cast<double>(tokens) / static_cast<double>(head_rows);
  add_linear(entries, {kVocab, kHidden, parts}, head_rows, dtype, DType::f32, false);
  return entries;
}

// "MxNxK" (weights as [N,K]), or the full form that the tables print.
MatmulKey parse_shape(const std::string& text, DType dtype) {
  try {
    if (text.find(' ') != std::string::npos) return MatmulKey::parse(text);
    const std::string_view name = name_of(dtype);
    return MatmulKey::parse(fmt::format("{} nt {}->{}", text, name, name));
  } catch (const Error&) {
    fail(ExitCode::usage,
         "'{}' is not a shape; write 1024x768x3072, or '768x768x1024 tn bf16->f32 +acc'", text);
  }
}

std::size_t operand_bytes(const MatmulKey& key) {
  const std::int64_t inputs = key.m * key.k + key.n * key.k;
  return static_cast<std::size_t>(inputs) * 4 + static_cast<std::size_t>(key.m * key.n) * 4;
}

std::vector<Entry> wanted_entries(const Options& options) {
  const DType dtype = parse_compute_dtype(options.dtype);
  std::vector<Entry> entries;
  for (const std::string& text : options.shapes) entries.push_back({parse_shape(text, dtype)});
  if (entries.empty()) entries = shapes_of_gpt2(options.tokens, options.head_rows, dtype);
  for (const Entry& entry : entries) {
    if (entry.key.m < 1 || entry.key.n < 1 || entry.key.k < 1) {
      fail(ExitCode::usage, "'{}': every dimension must be at least 1", entry.key.text());
    }
    constexpr std::int64_t kMost = std::int64_t{1} << 30;
    if (entry.key.m > kMost || entry.key.n > kMost || entry.key.k > kMost) {
      fail(ExitCode::usage, "'{}': a dimension is larger than {}", entry.key.text(), kMost);
    }
    require_memory(operand_bytes(entry.key), "'" + entry.key.text() + "'",
                   "choose a smaller shape");
  }
  return entries;
}

double flops_of(const MatmulKey& key) {
  return 2.0 * static_cast<double>(key.m) * static_cast<double>(key.n) * static_cast<double>(key.k);
}

// Sustained rate over all entries: FLOPs over the time that `seconds_of` gives to each.
class WeightedRate {
 public:
  void add(const Entry& entry, double seconds) {
    flops_ += entry.count * flops_of(entry.key);
    seconds_ += entry.count * seconds;
  }
  [[nodiscard]] double flops_per_s() const { return seconds_ > 0 ? flops_ / seconds_ : 0; }

 private:
  double flops_ = 0;
  double seconds_ = 0;
};

void print_row(const Entry& entry, const std::vector<MatmulTiming>& timings,
               const std::string& best) {
  fmt::print("{:<40}", entry.key.text());
  for (const MatmulTiming& timing : timings) {
    if (timing.kernel == "reference") continue;
    const std::string mark = timing.kernel == best ? "*" : " ";
    if (timing.problem.empty()) {
      fmt::print(" {:>13.1f}{}", flops_of(entry.key) / timing.median_s * 1e-9, mark);
    } else {
      fmt::print(" {:>13}{}", timing.problem.starts_with("wrong") ? "WRONG" : "-", mark);
    }
  }
  fmt::print("\n");
  std::fflush(stdout);
}

void run(const Options& options) {
  if (options.threads > 0) set_thread_count(options.threads);
  if (options.processor_time && thread_count() != 1) {
    fail(ExitCode::usage, "--processor-time counts one thread's time; add --threads 1");
  }
  const std::vector<Entry> entries = wanted_entries(options);
  const std::unique_ptr<Device> device = make_device(options.device);
  TuneOptions tune;
  tune.seconds = options.seconds;
  tune.preference = 0;
  tune.processor_time = options.processor_time;
  WeightedRate best_rate;
  WeightedRate own_rate;
  nlohmann::json rows = nlohmann::json::array();
  for (const Entry& entry : entries) {
    const std::vector<MatmulTiming> timings = time_matmul(*device, entry.key, tune);
    const MatmulChoice choice = choose_matmul(entry.key, timings, tune);
    if (&entry == &entries.front() && !options.json) {
      fmt::print("{}, GFLOP/s (median), * fastest\n{:<40}", cpu_matmul_identity(), "shape");
      for (const MatmulTiming& timing : timings) {
        if (timing.kernel != "reference") fmt::print(" {:>13} ", timing.kernel);
      }
      fmt::print("\n");
    }
    nlohmann::json rates = nlohmann::json::object();
    for (const MatmulTiming& timing : timings) {
      if (!timing.problem.empty()) {
        rates[timing.kernel] = timing.problem;
        continue;
      }
      rates[timing.kernel] = {{"median_s", timing.median_s}, {"best_s", timing.best_s}};
      if (timing.kernel == tune.preferred) own_rate.add(entry, timing.median_s);
    }
    best_rate.add(entry, flops_of(entry.key) / choice.flops_per_s);
    rows.push_back({{"shape", entry.key.text()},
                    {"calls", entry.count},
                    {"best", choice.kernel},
                    {"flops_per_s", choice.flops_per_s},
                    {"kernels", rates}});
    if (!options.json) print_row(entry, timings, choice.kernel);
  }
  if (options.json) {
    const nlohmann::json root{{"machine", cpu_matmul_identity()},
                              {"threads", thread_count()},
                              {"best_flops_per_s", best_rate.flops_per_s()},
                              {"own_flops_per_s", own_rate.flops_per_s()},
                              {"shapes", rows}};
    fmt::print("{}\n", root.dump(1));
  } else {
    fmt::print("weighted by FLOPs: best of all {:.1f} GFLOP/s, belay alone {:.1f} GFLOP/s\n",
               best_rate.flops_per_s() * 1e-9, own_rate.flops_per_s() * 1e-9);
  }
}

}  // namespace

void add_bench_gemm(CLI::App& bench) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      bench.add_subcommand("gemm", "Every matrix-product candidate, shape by shape");
  command
      ->add_option("--shapes", options->shapes,
                   "Shapes MxNxK (weights as [N,K]) instead of a model's, comma-separated")
      ->delimiter(',');
  command->add_option("--model", options->model, "Whose shapes to measure")
      ->check(CLI::IsMember({"gpt2-124m"}))
      ->capture_default_str();
  command->add_option("--dtype", options->dtype, "f32, bf16 or f16")->capture_default_str();
  command->add_option("--device", options->device, "Device")->capture_default_str();
  command->add_option("--tokens", options->tokens, "Rows of a step's products")
      ->check(above_zero())
      ->capture_default_str();
  command->add_option("--head-rows", options->head_rows, "Rows of the vocabulary's products")
      ->check(above_zero())
      ->capture_default_str();
  command->add_option("--seconds", options->seconds, "Time per shape, about")
      ->check(above_zero())
      ->capture_default_str();
  command->add_option("--threads", options->threads, "Compute threads (default: all)")
      ->check(above_zero());
  command->add_flag("--processor-time", options->processor_time,
                    "Count processor time, not elapsed time: for a busy machine; one thread only");
  command->add_flag("--json", options->json, "Machine-readable output");
  command->footer(
      "Examples:\n"
      "  belay bench gemm --model gpt2-124m --dtype bf16\n"
      "  belay bench gemm --shapes 1024x768x768,1x50257x768 --json\n"
      "  belay bench gemm --shapes '768x3072x1024 tn bf16->f32 +acc'");
  command->callback([options] { run(*options); });
}

}  // namespace belay
