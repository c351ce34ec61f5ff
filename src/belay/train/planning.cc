#include "belay/train/planning.h"

#include <malloc.h>

#include <algorithm>

#include "belay/base/error.h"
#include "belay/base/log.h"
#include "belay/base/parallel.h"
#include "belay/device/matmul_cache.h"
#include "belay/device/matmul_tune.h"
#include "belay/machine/available_memory.h"
#include "belay/model/flops.h"
#include "belay/plan/calibrate.h"
#include "belay/plan/dry_device.h"

namespace belay {
namespace {

constexpr std::size_t kUnbounded = std::size_t{1} << 61;

struct DryRun {
  std::vector<OpCall> calls;
  ArenaSizes sizes;
  std::size_t input_bytes = 0;
};

DryRun dry_run(const Device& target, const ParameterTable& table, const ProgramConfig& config) {
  DryDevice device(target);
  Program program(device, table, config, {kUnbounded, kUnbounded, 0});
  RecordingLane lane(device);
  program.record_step(lane);
  DryRun result{lane.calls(), program.peaks(), program.input_bytes()};
  for (const OpCall& call : result.calls) {
    result.sizes.workspace = std::max(result.sizes.workspace, call.workspace);
  }
  return result;
}

// Leaves alone what a resumed run has brought along.
void choose_kernels(Device& device, std::vector<MatmulKey> keys, const PlanningOptions& options) {
  if (options.matmul != "auto") {
    for (const MatmulKey& key : keys) device.matmul_choices().set(key, {options.matmul, 0});
    return;
  }
  std::erase_if(keys,
                [&](const MatmulKey& key) { return !device.matmul_choices().find(key).empty(); });
  const std::string cache = options.cache.empty() ? default_matmul_cache_path() : options.cache;
  tune_matmuls(device, keys, cache, {}, [&](const TuneProgress& p) {
    if (!options.progress || !p.measured) return;
    options.progress(fmt::format("measured {} of {}: {} -> {} ({:.0f} GFLOP/s)", p.done, p.total,
                                 p.key.text(), p.choice.kernel, p.choice.flops_per_s * 1e-9));
  });
  ::malloc_trim(0);  // measuring took memory that the run will want
}

// A choice that declines its shape here (another processor's plan, or one name for all products) is
// replaced by what runs instead, so that plan and snapshots say what is true.
void record_selection(Device& device, std::span<const OpCall> calls) {
  for (const OpCall& call : calls) {
    if (call.op != MatmulArgs::kName) continue;
    const MatmulKey key = MatmulKey::of(call.as<MatmulArgs>());
    const std::string_view chosen = device.matmul_choices().find(key);
    if (chosen == call.kernel) continue;
    if (!chosen.empty()) {
      log::warn("{} does not take {}; {} runs it", chosen, key.text(), call.kernel);
    }
    device.matmul_choices().set(key, {std::string(call.kernel), 0});
  }
}

std::vector<MemoryItem> memory_plan(const ParameterTable& table, const ProgramConfig& config,
                                    const DryRun& dry, std::size_t exchange_bytes = 0) {
  const auto state = ParameterStore::bytes(table, {config.compute, config.train, config.shard});
  const std::int64_t rotary =
      config.model.learned_positions() ? 0 : config.model.seq_len * config.model.head_dim * 4;
  std::vector<MemoryItem> memory = {{"parameters", state.masters},
                                    {"low-precision weights", state.copies},
                                    {"gradients", state.grads},
                                    {"optimizer moments", state.moments},
                                    {"gathered weights", state.gathered},
                                    {"activations", dry.sizes.saved},
                                    {"temporaries", dry.sizes.scratch},
                                    {"kernel workspace", dry.sizes.workspace},
                                    {"rotary table", static_cast<std::size_t>(rotary)},
                                    {"inputs and sums", dry.input_bytes},
                                    {"communication", exchange_bytes}};
  std::erase_if(memory, [](const MemoryItem& item) { return item.bytes == 0; });
  return memory;
}

void refuse_what_does_not_fit(const Plan& plan, int ranks_on_host) {
  const auto ranks = static_cast<std::size_t>(ranks_on_host);
  require_memory(
      ranks * plan.total_bytes(),
      ranks == 1 ? "the run" : fmt::format("the run, with {} ranks on this host,", ranks),
      fmt::format("lower train.micro_batch, model.seq_len or the model's size, or set "
                  "train.dtype = \"bf16\"; the largest classes:\n{}",
                  describe_memory(plan)));
}

// Rows of operands are counted in 32 bits.
void check_tokens(const ProgramConfig& config) {
  constexpr std::int64_t kMost = (std::int64_t{1} << 31) - 1;
  if (config.micro_batch <= kMost / config.seq_len) return;
  fail(ExitCode::usage,
       "a pass of {} rows of {} tokens holds more than {} tokens; use fewer rows at a time",
       config.micro_batch, config.seq_len, kMost);
}

}  // namespace

DryStep dry_step(const Device& device, const ParameterTable& table, const ProgramConfig& config,
                 std::size_t exchange_bytes) {
  check_tokens(config);
  DryRun dry = dry_run(device, table, config);
  DryStep step{{}, memory_plan(table, config, dry, exchange_bytes)};
  step.calls = std::move(dry.calls);
  return step;
}

void require_plan_fits(const Device& device, const ParameterTable& table,
                       const ProgramConfig& config, const PlanningOptions& options) {
  check_tokens(config);
  Plan plan;
  plan.memory = memory_plan(table, config, dry_run(device, table, config), options.exchange_bytes);
  refuse_what_does_not_fit(plan, options.ranks_on_host);
}

Prepared prepare_program(Device& device, const ParameterTable& table, const ProgramConfig& config,
                         const PlanningOptions& options) {
  check_tokens(config);
  DryRun dry = dry_run(device, table, config);
  const std::vector<MatmulKey> keys = matmul_keys(dry.calls);
  Prepared result;
  Plan& plan = result.plan;
  plan.memory = memory_plan(table, config, dry, options.exchange_bytes);
  refuse_what_does_not_fit(
      plan, options.ranks_on_host);  // before kernels are measured, which takes time and memory too
  if (options.choose) choose_kernels(device, keys, options);
  dry = dry_run(device, table, config);  // workspaces and kernel names of the choices
  record_selection(device, dry.calls);

  plan.device = device.name();
  plan.threads = thread_count();
  plan.dtype = name_of(config.compute);
  plan.parameters = table.parameter_count();
  plan.micro_batch = config.micro_batch;
  plan.accumulation = options.accumulation;
  plan.seq_len = config.seq_len;
  plan.tokens_per_step = options.step_tokens > 0
                             ? options.step_tokens
                             : config.micro_batch * options.accumulation * config.seq_len;
  plan.model_flops_per_token = training_flops_per_token(config.model, config.seq_len);
  plan.memory = memory_plan(table, config, dry, options.exchange_bytes);
  for (const MatmulKey& key : keys) {
    const auto found = device.matmul_choices().all().find(key);
    if (found != device.matmul_choices().all().end()) plan.matmuls.emplace_back(key, found->second);
  }
  plan.ops = summarise(dry.calls, options.accumulation);
  refuse_what_does_not_fit(plan, options.ranks_on_host);

  result.program = std::make_unique<Program>(device, table, config, dry.sizes);
  if (options.calibrate) {
    Program& program = *result.program;
    RecordingLane recorder(device);
    program.record_step(recorder);
    calibrate(program.lane(), recorder.calls(), plan.ops);
    if (config.train) program.clear_state(program.lane());
    predict(plan);
  }
  return result;
}

}  // namespace belay
