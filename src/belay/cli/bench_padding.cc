// belay bench padding: what padding costs, in trained tokens per second.

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "belay/base/error.h"
#include "belay/base/median.h"
#include "belay/base/philox.h"
#include "belay/cli/bench.h"
#include "belay/cli/bench_program.h"
#include "belay/cli/options.h"
#include "belay/train/planning.h"
#include "belay/train/step.h"

namespace belay {
namespace {

struct Arguments {
  std::string model = "gpt2-124m";
  std::int64_t batch = 4;
  std::int64_t seq_len = 256;
  std::string dtype = "f32";
  std::int64_t steps = 3;
  std::vector<double> shares = {0.0, 0.005, 0.05, 0.2, 0.5};
  bool json = false;
};

// Each row a document of random tokens and padding behind it, as the loader makes them.
class PaddedBatch {
 public:
  PaddedBatch(const Arguments& a, double share, std::int64_t vocab) : rows_(a.batch) {
    const auto tokens =
        static_cast<std::int64_t>(std::llround(static_cast<double>(a.seq_len) * (1.0 - share)));
    for (std::int64_t i = 0; i < a.batch * a.seq_len; ++i) {
      const std::int64_t column = i % a.seq_len;
      const bool text = column < tokens;
      const PhiloxBlock words = random_block({1, 0, 7}, static_cast<std::uint64_t>(i));
      const auto id = [&](std::uint32_t word) {
        return static_cast<std::int32_t>(word % static_cast<std::uint64_t>(vocab));
      };
      tokens_.push_back(text ? id(words[0]) : 0);
      targets_.push_back(text ? id(words[1]) : -1);
      positions_.push_back(static_cast<std::int32_t>(text ? column : column - tokens));
      doc_begin_.push_back(static_cast<std::int32_t>(text ? 0 : tokens));
    }
    counted_ = tokens * a.batch;
  }

  [[nodiscard]] MicroBatch micro() const {
    return {{rows_, tokens_.data(), targets_.data(), positions_.data(), doc_begin_.data()},
            counted_};
  }
  [[nodiscard]] std::int64_t counted() const { return counted_; }

 private:
  std::int64_t rows_;
  std::int64_t counted_ = 0;
  std::vector<std::int32_t> tokens_, targets_, positions_, doc_begin_;
};

void run(const Arguments& a) {
  const ProgramConfig config =
      bench_program(a.model, a.batch, a.seq_len, parse_compute_dtype(a.dtype));
  const ParameterTable table = make_parameter_table(config.model);
  const auto device = make_device("cpu");
  PlanningOptions planning;
  planning.calibrate = false;
  const Prepared prepared = prepare_program(*device, table, config, planning);
  prepared.program->parameters().initialise(prepared.program->lane(), 1);

  std::vector<PaddedBatch> batches;
  for (const double share : a.shares) {
    batches.emplace_back(a, share, config.model.vocab);
    if (batches.back().counted() == 0) {
      fail(ExitCode::usage, "--shares {}: no token is left in a row of {}", share, a.seq_len);
    }
  }
  OptimizerConfig optimizer;
  optimizer.schedule = ScheduleKind::constant;
  optimizer.lr = 1e-4;
  const auto count = static_cast<std::int64_t>(batches.size());
  Stepper stepper(*prepared.program, optimizer, (a.steps + 1) * count);
  std::vector<std::vector<double>> seconds(batches.size());
  std::int64_t step = 0;
  // In turn, so that a change of the machine's speed meets all alike.
  for (std::int64_t round = 0; round <= a.steps; ++round) {
    for (std::size_t i = 0; i < batches.size(); ++i) {
      ++step;
      const auto begin = std::chrono::steady_clock::now();
      const StepResult result = stepper.run(step, step, [&] { return batches[i].micro(); });
      const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
      if (result.outcome != StepOutcome::updated) {
        fail(ExitCode::numerics, "step {} of the benchmark did not update", step);
      }
      if (round > 0) seconds[i].push_back(taken.count());
    }
  }

  nlohmann::ordered_json results = nlohmann::ordered_json::array();
  const auto positions = static_cast<double>(a.batch * a.seq_len);
  for (std::size_t i = 0; i < batches.size(); ++i) {
    const double taken = median(seconds[i]);
    const auto tokens = static_cast<double>(batches[i].counted());
    results.push_back({{"padding_share", 1.0 - tokens / positions},
                       {"step_ms", taken * 1e3},
                       {"positions_per_s", positions / taken},
                       {"tokens_per_s", tokens / taken}});
  }
  if (a.json) {
    const nlohmann::ordered_json object = {{"model", a.model}, {"dtype", a.dtype},
                                           {"batch", a.batch}, {"seq", a.seq_len},
                                           {"steps", a.steps}, {"padding", results}};
    fmt::print("{}\n", object.dump());
    return;
  }
  fmt::print("{:>8} {:>10} {:>14} {:>14}\n", "padding", "step ms", "positions/s", "tokens/s");
  for (const auto& entry : results) {
    fmt::print("{:>7.2f}% {:>10.1f} {:>14.0f} {:>14.0f}\n",
               100.0 * entry["padding_share"].get<double>(), entry["step_ms"].get<double>(),
               entry["positions_per_s"].get<double>(), entry["tokens_per_s"].get<double>());
  }
}

}  // namespace

void add_bench_padding(CLI::App& bench) {
  CLI::App* command =
      bench.add_subcommand("padding", "Training speed against the share of rows that is padding");
  auto a = std::make_shared<Arguments>();
  command
      ->add_option("--model", a->model, fmt::format("One of {}", fmt::join(preset_names(), ", ")))
      ->capture_default_str();
  command->add_option("--batch", a->batch, "Rows")->check(above_zero())->capture_default_str();
  command->add_option("--seq", a->seq_len, "Places of a row")
      ->check(above_zero())
      ->capture_default_str();
  command->add_option("--dtype", a->dtype, "f32, bf16 or f16")->capture_default_str();
  command->add_option("--steps", a->steps, "Timed steps of each share, after one that is not")
      ->check(above_zero())
      ->capture_default_str();
  command->add_option("--shares", a->shares, "Shares of padding, with commas between")
      ->delimiter(',')
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  command->add_flag("--json", a->json, "Print JSON");
  command->footer("Example:\n  belay bench padding --dtype bf16 --shares 0,0.005,0.2,0.5");
  command->callback([a] { run(*a); });
}

}  // namespace belay
