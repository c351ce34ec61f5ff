#include "belay/train/stress.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "belay/precision/arithmetic_config.h"
#include "belay/precision/gradient_protection.h"
#include "belay/train/planning.h"
#include "belay/train/step.h"

namespace belay {
namespace {

constexpr std::int64_t kRows = 4;
constexpr std::int64_t kSeqLen = 32;
constexpr std::int64_t kEvaluationBatches = 32;
constexpr std::uint32_t kFirstEvaluationBatch = 1U << 30;  // training batches are numbered by step
constexpr std::int32_t kOutlier = 7;                       // the token that goes astray

// Embeddings are tied to the head, so that an outlier acts on both ends.
ModelConfig stress_model() {
  ModelConfig model = family_defaults(Family::gpt2);
  model.layers = 2;
  model.hidden = 64;
  model.heads = 4;
  model.vocab = 64;
  model.seq_len = kSeqLen;
  finish_config(model);
  // In every type, so that runs differ in the type only.
  return in_precision(model, DType::f16);
}

OptimizerConfig stress_optimizer() {
  OptimizerConfig optimizer;
  optimizer.lr = 3e-3;
  optimizer.min_lr = 1e-5;
  optimizer.warmup_steps = 20;
  return optimizer;
}

class StressRun {
 public:
  StressRun(StressScenario scenario, StressProtection protection, const StressOptions& options)
      : script_(scenario, options.steps),
        options_(options),
        precision_(stress_precision(protection)),
        optimizer_(stress_optimizer()),
        table_(make_parameter_table(model_)),
        device_(make_device("cpu")),
        tokens_(model_.vocab, options.seed),
        protection_(precision_, table_.names(), kRows * kSeqLen) {
    ProgramConfig config;
    config.model = model_;
    config.micro_batch = kRows;
    config.seq_len = kSeqLen;
    config.compute = protection == StressProtection::f32 ? DType::f32 : DType::f16;
    config.seed = options.seed;
    PlanningOptions planning;
    planning.calibrate = false;
    planning.matmul = "belay";  // the same bits whatever the number of threads
    program_ = prepare_program(*device_, table_, config, planning).program;
    program_->parameters().initialise(program_->lane(), options.seed);
  }

  StressResult run() {
    Stepper stepper(*program_, optimizer_, options_.steps);
    result_.lowest_scale = protection_.scaler().scale();
    for (std::int64_t step = 1; step <= options_.steps; ++step) {
      if (script_.row_factor(step) != 1.0) multiply_row(script_.row_factor(step));
      if (!one_step(stepper, step)) break;
      result_.survived = step;
      if (options_.progress) options_.progress(step);
    }
    result_.last_scale = protection_.scaler().scale();
    evaluate();
    return result_;
  }

 private:
  // False: the run is over.
  bool one_step(Stepper& stepper, std::int64_t step) {
    if (script_.repeats_a_token(step)) {
      tokens_.fill_with(kOutlier, kRows, kSeqLen);
    } else {
      tokens_.fill(static_cast<std::uint32_t>(step), kRows, kSeqLen);
    }
    // The step divides by all that it multiplied with, so what is learned does not grow; the guard
    // sees norms with the factor in them, as it would if the loss had grown.
    const double factor = script_.gradient_factor(step);
    const StepResult step_result = stepper.run(
        step, updates_ + 1,
        [&] {
          return MicroBatch{tokens_.batch(), kRows * kSeqLen};
        },
        protection_.multiplier() * factor);
    const double divisor = step_result.divisor / factor;
    if (step_result.outcome == StepOutcome::updated) {
      ++updates_;
      const ScaleChange change = protection_.good_step(step_result.squares, divisor);
      if (change.after < change.before) ++result_.lowered;
    } else {
      protection_.overflow(step_result.squares, divisor, std::isfinite(step_result.loss));
      ++result_.skipped;
      if (result_.first_skip == 0) result_.first_skip = step;
    }
    result_.lowest_scale = std::min(result_.lowest_scale, protection_.scaler().scale());
    return protection_.scaler().stuck() < precision_.max_skips;
  }

  void multiply_row(double factor) {
    const Tensor embedding = program_->parameters().master(table_.find("embedding.weight"));
    const Tensor row = embedding.rows(kOutlier, kOutlier + 1);
    std::vector<float> values(static_cast<std::size_t>(row.elements()));
    ParameterStore::read(program_->lane(), row, values);
    for (float& value : values) value = static_cast<float>(value * factor);
    ParameterStore::write(program_->lane(), row, values);
    program_->parameters().refresh_copies(program_->lane());
    program_->lane().wait();
  }

  void evaluate() {
    Lane& lane = program_->lane();
    program_->clear_loss(lane);
    for (std::int64_t batch = 0; batch < kEvaluationBatches; ++batch) {
      tokens_.fill(kFirstEvaluationBatch + static_cast<std::uint32_t>(batch), kRows, kSeqLen);
      program_->run_micro_batch(lane, tokens_.batch(), {0, 0}, false);
      lane.wait();
    }
    result_.val_loss =
        program_->read_loss(lane) / static_cast<double>(kEvaluationBatches * kRows * kSeqLen);
    result_.perplexity = std::exp(result_.val_loss);
  }

  StressScript script_;
  const StressOptions& options_;
  PrecisionConfig precision_;
  OptimizerConfig optimizer_;
  ModelConfig model_ = stress_model();
  ParameterTable table_;
  std::unique_ptr<Device> device_;
  MarkovTokens tokens_;
  GradientProtection protection_;
  std::unique_ptr<Program> program_;
  StressResult result_;
  std::int64_t updates_ = 0;
};

}  // namespace

std::string_view name_of(StressProtection protection) {
  constexpr std::string_view kNames[] = {"f32", "plain", "scaler", "guard"};
  return kNames[static_cast<std::size_t>(protection)];
}

PrecisionConfig stress_precision(StressProtection protection) {
  PrecisionConfig config;
  config.growth_interval = 50;
  config.guard_every = 5;
  config.guard_window = 20;
  config.forecast_horizon = 20;
  config.forecast_history = 64;
  config.forecast_block = 1;
  config.guard = protection == StressProtection::guard;
  if (protection == StressProtection::plain) config.loss_scale = LossScaleMode::none;
  const DType dtype = protection == StressProtection::f32 ? DType::f32 : DType::f16;
  return resolved(config, dtype);
}

StressResult run_stress(StressScenario scenario, StressProtection protection,
                        const StressOptions& options) {
  return StressRun(scenario, protection, options).run();
}

}  // namespace belay
