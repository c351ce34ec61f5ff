// belay bench train: whole training steps against the machine's own matrix-product rate.

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "belay/base/error.h"
#include "belay/base/log.h"
#include "belay/base/philox.h"
#include "belay/cli/bench.h"
#include "belay/cli/bench_program.h"
#include "belay/cli/options.h"
#include "belay/device/matmul_tune.h"
#include "belay/plan/plan.h"
#include "belay/train/planning.h"
#include "belay/train/step.h"

namespace belay {
namespace {

struct Arguments {
  std::string model = "gpt2-124m";
  std::int64_t batch = 4;
  std::int64_t seq_len = 256;
  std::string dtype = "f32";
  std::int64_t steps = 5;
  std::string matmul = "auto";
  bool gemm = true;
  bool ops = false;
  bool json = false;
};

// Peak resident memory since the last reset (Linux: VmHWM).
void reset_peak_memory() {
  std::ofstream("/proc/self/clear_refs") << "5";
}

std::int64_t peak_memory() {
  std::ifstream status("/proc/self/status");
  std::string key;
  std::int64_t kilobytes = 0;
  while (status >> key) {
    if (key == "VmHWM:" && status >> kilobytes) return kilobytes * 1024;
  }
  return 0;
}

struct RandomBatch {
  std::vector<std::int32_t> tokens, targets, positions, doc_begin;

  RandomBatch(std::int64_t rows, std::int64_t seq_len, std::int64_t vocab) {
    for (std::int64_t i = 0; i < rows * seq_len; ++i) {
      const PhiloxBlock words = random_block({1, 0, 7}, static_cast<std::uint64_t>(i));
      tokens.push_back(static_cast<std::int32_t>(words[0] % static_cast<std::uint64_t>(vocab)));
      targets.push_back(static_cast<std::int32_t>(words[1] % static_cast<std::uint64_t>(vocab)));
      positions.push_back(static_cast<std::int32_t>(i % seq_len));
      doc_begin.push_back(0);
    }
  }
};

// The rate at which the machine does this plan's matrix products when each takes the fastest
// candidate: all FLOPs over the sum of the times.
double machine_gemm_rate(Device& device, const Plan& plan) {
  TuneOptions options;
  options.seconds = 0.15;
  options.preference = 0;
  double flops = 0;
  double seconds = 0;
  for (const PlannedOp& op : plan.ops) {
    if (op.op != MatmulArgs::kName) continue;
    const MatmulKey key = MatmulKey::parse(op.shape);
    double best = 0;
    for (const MatmulTiming& timing : time_matmul(device, key, options)) {
      if (timing.best_s > 0 && (best == 0 || timing.best_s < best)) best = timing.best_s;
    }
    flops += op.flops * static_cast<double>(op.calls);
    seconds += best * static_cast<double>(op.calls);
  }
  return seconds > 0 ? flops / seconds : 0;
}

struct Measured {
  std::vector<double> step_ms;
  double forward_ms = 0;  // of the last step
  double backward_ms = 0;
  double optimizer_ms = 0;
  std::int64_t peak_bytes = 0;
};

Measured measure_steps(Program& program, const Arguments& a) {
  const ProgramConfig& config = program.config();
  program.parameters().initialise(program.lane(), 1);
  const RandomBatch batch(a.batch, a.seq_len, config.model.vocab);
  const MicroBatch micro{{a.batch, batch.tokens.data(), batch.targets.data(),
                          batch.positions.data(), batch.doc_begin.data()},
                         a.batch * a.seq_len};
  OptimizerConfig optimizer;
  optimizer.schedule = ScheduleKind::constant;
  optimizer.lr = 1e-4;
  Stepper stepper(program, optimizer, a.steps + 1);
  Measured measured;
  StepClock clock;
  program.lane().set_recorder(&clock);
  for (std::int64_t step = 1; step <= a.steps + 1; ++step) {
    clock.reset();
    const auto begin = std::chrono::steady_clock::now();
    const StepResult result = stepper.run(step, step, [&] { return micro; });
    const std::chrono::duration<double, std::milli> taken =
        std::chrono::steady_clock::now() - begin;
    if (result.outcome != StepOutcome::updated) {
      fail(ExitCode::numerics, "step {} of the benchmark did not update", step);
    }
    if (step > 1) measured.step_ms.push_back(taken.count());
  }
  measured.forward_ms = clock.forward_ms;
  measured.backward_ms = clock.backward_ms;
  measured.optimizer_ms = clock.optimizer_ms;
  measured.peak_bytes = peak_memory();
  program.lane().set_recorder(nullptr);
  return measured;
}

void print_ops(const Plan& plan) {
  fmt::print("{:<20} {:<12} {:<10} {:<34} {:>6} {:>10} {:>9} {:>8}\n", "op", "kernel", "tag",
             "shape", "calls", "us", "GFLOP/s", "GB/s");
  for (const PlannedOp& op : plan.ops) {
    fmt::print("{:<20} {:<12} {:<10} {:<34} {:>6} {:>10.1f} {:>9.1f} {:>8.1f}\n", op.op, op.kernel,
               op.tag, op.shape, op.calls, op.seconds * 1e6, op.flops / op.seconds * 1e-9,
               op.bytes / op.seconds * 1e-9);
  }
}

void run(const Arguments& a) {
  const ProgramConfig config =
      bench_program(a.model, a.batch, a.seq_len, parse_compute_dtype(a.dtype));
  const ParameterTable table = make_parameter_table(config.model);
  const auto device = make_device("cpu");
  PlanningOptions planning;
  planning.matmul = a.matmul;
  planning.progress = [](const std::string& line) { log::info("{}", line); };

  Prepared prepared = prepare_program(*device, table, config, planning);
  const Plan plan = prepared.plan;
  double gemm_rate = 0;
  if (a.gemm) {
    prepared.program.reset();  // its memory would count twice
    gemm_rate = machine_gemm_rate(*device, plan);
    planning.calibrate = false;
    prepared = prepare_program(*device, table, config, planning);
  }
  reset_peak_memory();
  Measured measured = measure_steps(*prepared.program, a);
  prepared.program.reset();
  if (a.gemm) gemm_rate = std::max(gemm_rate, machine_gemm_rate(*device, plan));

  std::sort(measured.step_ms.begin(), measured.step_ms.end());
  const double step_ms = measured.step_ms[measured.step_ms.size() / 2];
  const auto tokens = static_cast<double>(a.batch * a.seq_len);
  const double model_rate = plan.model_flops_per_token * tokens / step_ms * 1e3;
  const nlohmann::ordered_json object = {
      {"model", a.model},
      {"dtype", a.dtype},
      {"batch", a.batch},
      {"seq", a.seq_len},
      {"positions", config.model.seq_len},
      {"steps", a.steps},
      {"step_ms", step_ms},
      {"best_step_ms", measured.step_ms.front()},
      {"forward_ms", measured.forward_ms},
      {"backward_ms", measured.backward_ms},
      {"optimizer_ms", measured.optimizer_ms},
      {"predicted_step_ms", plan.predicted.step_ms},
      {"tokens_per_s", tokens / step_ms * 1e3},
      {"model_flops_per_s", model_rate},
      {"gemm_flops_per_s", gemm_rate},
      {"efficiency", gemm_rate > 0 ? model_rate / gemm_rate : 0.0},
      {"planned_bytes", plan.total_bytes()},
      {"peak_rss_bytes", measured.peak_bytes}};
  if (a.json) {
    fmt::print("{}\n", object.dump());
    return;
  }
  if (a.ops) print_ops(plan);
  for (const auto& [key, value] : object.items()) fmt::print("{:<20} {}\n", key, value.dump());
}

}  // namespace

void add_bench_train(CLI::App& bench) {
  CLI::App* command = bench.add_subcommand(
      "train", "Whole training steps on random tokens, against the matrix-product rate");
  auto a = std::make_shared<Arguments>();
  command
      ->add_option("--model", a->model, fmt::format("One of {}", fmt::join(preset_names(), ", ")))
      ->capture_default_str();
  command->add_option("--batch", a->batch, "Rows")->check(above_zero())->capture_default_str();
  command->add_option("--seq", a->seq_len, "Tokens per row; a model with fewer positions gets more")
      ->check(above_zero())
      ->capture_default_str();
  command->add_option("--dtype", a->dtype, "f32, bf16 or f16")->capture_default_str();
  command->add_option("--steps", a->steps, "Timed steps, after one that is not")
      ->check(above_zero())
      ->capture_default_str();
  command->add_option("--matmul", a->matmul, "auto, or one candidate for all matrix products")
      ->capture_default_str();
  command->add_flag("--gemm,!--no-gemm", a->gemm,
                    "Measure the matrix-product rate before and after (default)");
  command->add_flag("--ops", a->ops, "Print the time of every operator of the step");
  command->add_flag("--json", a->json, "Print JSON");
  command->footer(
      "Example:\n  belay bench train --model gpt2-124m --batch 4 --seq 256 --dtype bf16");
  command->callback([a] { run(*a); });
}

}  // namespace belay
