#include "belay/train/trainer.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "belay/base/error.h"
#include "belay/base/file.h"
#include "belay/base/log.h"
#include "belay/observe/memory.h"
#include "belay/observe/sinks.h"
#include "belay/snapshot/convert.h"
#include "belay/train/batch_source.h"
#include "belay/train/evaluate.h"
#include "belay/train/gradient_watch.h"
#include "belay/train/interrupt.h"
#include "belay/train/model_source.h"
#include "belay/train/resume.h"
#include "belay/train/run_lock.h"
#include "belay/train/step.h"
#include "belay/train/timeline_recorder.h"

namespace belay {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

// Step times that the summary's median is taken from: the last so many.
constexpr std::size_t kMaxStepTimes = 65536;

double ms_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

class Trainer {
 public:
  Trainer(RunConfig config, const TrainOptions& options)
      : options_(options),
        setup_(set_up_run(std::move(config))),
        gradients_(setup_),
        hub_(setup_.config.train.log_every) {}

  TrainSummary run();

 private:
  [[nodiscard]] const TrainConfig& train_config() const { return setup_.config.train; }
  void open_run_directory();
  void find_start();
  void prepare();
  void open_sinks();
  void train_steps();
  void one_step(Stepper& stepper, const MicroBatchSource& source);
  void after_step();
  void report_outcome(const StepResult& result);
  void run_evaluation();
  void save(bool last);
  void write_trace();
  void summarise();

  TrainOptions options_;
  RunSetup setup_;
  GradientWatch gradients_;
  MetricHub hub_;
  Progress progress_;
  std::unique_ptr<RunLock> lock_;
  std::string resume_dir_;  // empty: a new run
  Prepared prepared_;
  StepClock clock_;
  std::unique_ptr<AnomalyWatch> watch_;  // anomaly mode
  std::unique_ptr<TimelineRecorder> tracer_;
  std::unique_ptr<GrowthWatch> growth_;
  double data_ms_ = 0;
  double guard_ms_ = 0;  // over all steps
  Clock::time_point step_begin_;
  std::int64_t last_saved_ = -1;
  std::vector<float> step_times_;
  TrainSummary summary_;
};

void Trainer::open_run_directory() {
  const fs::path out = options_.out;
  if (options_.out.empty()) fail(ExitCode::usage, "--out is empty; name the run directory");
  if (options_.resume != "auto" &&
      (fs::exists(out / "metrics.jsonl") || fs::exists(out / "snapshots"))) {
    fail(ExitCode::usage,
         "{} already holds a run; continue it with --resume auto, or choose another --out",
         options_.out);
  }
  std::error_code error;
  fs::create_directories(out, error);
  if (error) fail(ExitCode::data, "cannot create {}: {}", options_.out, error.message());
  lock_ = std::make_unique<RunLock>(options_.out);
  log::set_file((out / "log.txt").string());
}

void Trainer::find_start() {
  for (const std::string& name : clean_unfinished_snapshots(options_.out)) {
    log::warn("removed {}, left behind by a process that no longer exists", name);
  }
  resume_dir_ = options_.resume;
  if (options_.resume == "auto") {
    const auto found = find_latest_snapshot(options_.out);
    resume_dir_ = found ? found->dir : "";
    if (found) {
      for (const std::string& bad : found->passed_over) log::warn("passed over {}", bad);
    } else {
      log::info("no snapshot in {}: starting from step 0", options_.out);
    }
  }
  if (resume_dir_.empty()) return;
  const SnapshotState state = check_resume(resume_dir_, setup_, {options_.allow_new_optimizer});
  progress_ = progress_of(state, setup_);
  gradients_.restore(progress_.loss_scale_state);
  if (!state.matmul_choices.empty()) {
    choices_from_json(state.matmul_choices, resume_dir_, setup_.device->matmul_choices());
  }
  if (options_.stop_at > 0 && progress_.step >= options_.stop_at) {
    fail(ExitCode::usage, "{} is at step {} already, --stop-at is {}", resume_dir_, progress_.step,
         options_.stop_at);
  }
  if (progress_.step >= train_config().steps) {
    fail(ExitCode::usage,
         "{} is at step {} of {}: nothing is left to do; give more steps with --set train.steps=N",
         resume_dir_, progress_.step, train_config().steps);
  }
}

void Trainer::prepare() {
  PlanningOptions planning = planning_options(setup_.config);
  planning.progress = [](const std::string& line) { log::info("{}", line); };
  prepared_ = prepare_program(*setup_.device, setup_.table, program_config(setup_), planning);
  Program& program = *prepared_.program;
  write_file((fs::path(options_.out) / "plan.json").string(), plan_to_json(prepared_.plan));
  write_file((fs::path(options_.out) / "config.toml").string(), to_toml(effective_config(setup_)));
  log::info("{} parameters, {} tokens a step, memory plan:\n{}", setup_.table.parameter_count(),
            prepared_.plan.tokens_per_step(), describe_memory(prepared_.plan));
  log::info("predicted step: {:.1f} ms, {:.0f} tokens/s", prepared_.plan.predicted.step_ms,
            prepared_.plan.predicted.tokens_per_s);
  const std::string space = snapshot_space_warning(options_.out, setup_.table);
  if (!space.empty()) log::warn("{}", space);

  if (!resume_dir_.empty()) {
    load_into(resume_dir_, setup_, program);
    log::info("resumed from {} (step {})", resume_dir_, progress_.step);
  } else if (!setup_.config.model_path.empty()) {
    load_weights(program.lane(), resolve_snapshot(setup_.config.model_path), program.parameters());
    log::info("weights from {}", setup_.config.model_path);
  } else {
    program.parameters().initialise(program.lane(), train_config().seed);
  }
  program.lane().set_recorder(&clock_);
  if (setup_.config.arithmetic.anomaly) {
    watch_ = std::make_unique<AnomalyWatch>(program.lane(), &clock_);
    program.lane().set_recorder(watch_.get());
  }
  if (options_.timeline_first > 0) {
    tracer_ = std::make_unique<TimelineRecorder>(
        static_cast<std::size_t>(setup_.config.observe.timeline_spans));
  }
  growth_ = std::make_unique<GrowthWatch>(setup_.config.observe.memory_growth_warning);
}

void Trainer::open_sinks() {
  gradients_.open_record(options_.out, progress_.step);
  hub_.add(make_jsonl_sink((fs::path(options_.out) / "metrics.jsonl").string(), progress_.step));
  if (setup_.config.observe.tensorboard)
    hub_.add(make_tensorboard_sink(options_.out, progress_.step));
  ConsoleOptions console;
  console.first_step = progress_.step;
  console.total_steps = options_.stop_at > 0 ? std::min(options_.stop_at, train_config().steps)
                                             : train_config().steps;
  console.every = setup_.config.observe.console_every;
  hub_.add(make_console_sink(console));
}

void Trainer::report_outcome(const StepResult& result) {
  const std::int64_t step = progress_.step;
  switch (result.outcome) {
    case StepOutcome::updated:
      ++progress_.updates;
      break;
    case StepOutcome::no_labels:
      if (progress_.steps_without_labels++ == 0) {
        log::warn(
            "step {}: no token of the global batch has a label; parameters stay as they are "
            "(later ones are only counted)",
            step);
      }
      break;
    case StepOutcome::non_finite:
    case StepOutcome::saturated:
      ++progress_.steps_non_finite;
      break;
  }
  const auto begin = Clock::now();
  gradients_.after_step(step, result, hub_);
  guard_ms_ += ms_since(begin);
}

void Trainer::one_step(Stepper& stepper, const MicroBatchSource& source) {
  const std::int64_t step = progress_.step + 1;
  if (tracer_ != nullptr) {
    const bool on = step >= options_.timeline_first && step <= options_.timeline_last;
    clock_.set_also(on ? tracer_.get() : nullptr);
  }
  clock_.reset();
  data_ms_ = 0;
  const double scale = gradients_.scale();
  const StepResult result =
      stepper.run(step, progress_.updates + 1, source, gradients_.multiplier());
  progress_.step = step;
  const std::int64_t step_tokens = train_config().global_batch * setup_.seq_len;
  progress_.tokens += step_tokens;
  progress_.position += train_config().global_batch;

  StepMetrics metrics;
  metrics.step = step;
  metrics.tokens = progress_.tokens;
  metrics.step_tokens = step_tokens;
  metrics.counted_tokens = result.counted;
  metrics.loss = result.loss;
  metrics.lr = result.lr;
  metrics.grad_norm = result.grad_norm;
  metrics.loss_scale = scale;
  metrics.steps_skipped = progress_.steps_non_finite + (is_skipped(result.outcome) ? 1 : 0);
  metrics.data_ms = data_ms_;
  metrics.forward_ms = clock_.forward_ms;
  metrics.backward_ms = clock_.backward_ms;
  metrics.optimizer_ms = clock_.optimizer_ms;
  metrics.model_flops = prepared_.plan.model_flops_per_token * static_cast<double>(step_tokens);
  metrics.rss_bytes = resident_bytes();
  metrics.low_precision_ops = result.ops.low_precision;
  metrics.full_precision_ops = result.ops.full_precision;
  metrics.overflowing_ops = result.ops.overflowing;
  metrics.step_ms = ms_since(step_begin_);
  step_begin_ = Clock::now();
  hub_.step(metrics);
  if (step_times_.size() < kMaxStepTimes) {
    step_times_.push_back(static_cast<float>(metrics.step_ms));
  } else {
    step_times_[static_cast<std::size_t>(step) % kMaxStepTimes] =
        static_cast<float>(metrics.step_ms);
  }
  if (result.counted > 0) summary_.loss = result.loss;
  if (watch_ != nullptr && watch_->found()) log::warn("anomaly: {}", watch_->description());
  report_outcome(result);
  if (const auto rate = growth_->add(step, metrics.rss_bytes)) {
    log::warn("step {}: resident memory grows by {:.1f} MiB per 1000 steps", step, *rate);
  }
}

// Writes what was traced, once: after the last step asked for, or when the run ends before it.
void Trainer::write_trace() {
  if (tracer_ == nullptr) return;
  if (tracer_->timeline().spans().empty()) {
    log::warn("no step of {} to {} was run: there is no timeline", options_.timeline_first,
              options_.timeline_last);
    return;
  }
  const std::int64_t step = std::min(options_.timeline_last, progress_.step);
  const std::string path =
      (fs::path(options_.out) / fmt::format("timeline-{}-{}.json", options_.timeline_first, step))
          .string();
  write_chrome_trace(tracer_->timeline(), path);
  if (tracer_->timeline().dropped() > 0) {
    log::warn("the timeline was full: {} spans are missing; raise observe.timeline_spans",
              tracer_->timeline().dropped());
  }
  log::info("timeline of steps {} to {}: {} (open it at ui.perfetto.dev)", options_.timeline_first,
            step, path);
  clock_.set_also(nullptr);
  tracer_.reset();
}

void Trainer::run_evaluation() {
  const EvaluationResult result =
      evaluate(*prepared_.program, *setup_.val,
               {train_config().eval_batches, setup_.config.data.isolate_documents});
  summary_.val_loss = result.loss;
  hub_.evaluation({progress_.step, result.loss, result.tokens, result.ms});
}

void Trainer::save(bool last) {
  if (last_saved_ == progress_.step) return;
  const auto begin = Clock::now();
  progress_.loss_scale_state = gradients_.state();
  SnapshotOptions options;
  options.keep_last = train_config().keep_snapshots;
  options.tokenizer = setup_.train.tokenizer();
  try {
    summary_.snapshot = save_snapshot(options_.out, setup_.config.model, setup_.table,
                                      snapshot_state(setup_, progress_),
                                      snapshot_source(*prepared_.program), options);
  } catch (const Error& error) {
    if (last || setup_.config.snapshot.on_failure == OnFailure::stop) throw;
    log::error("step {}: the snapshot failed and training goes on: {}", progress_.step,
               error.what());
    return;
  }
  last_saved_ = progress_.step;
  hub_.snapshot(
      {progress_.step, static_cast<std::int64_t>(snapshot_bytes(setup_.table)), ms_since(begin)});
}

void Trainer::after_step() {
  const TrainConfig& config = train_config();
  const std::int64_t step = progress_.step;
  if (step == options_.timeline_last) write_trace();
  if (setup_.val &&
      ((config.eval_every > 0 && step % config.eval_every == 0) || step == config.steps)) {
    run_evaluation();
  }
  if (config.snapshot_every > 0 && step % config.snapshot_every == 0) save(false);
  step_begin_ = Clock::now();
}

void Trainer::train_steps() {
  const TrainConfig& config = train_config();
  Stepper stepper(*prepared_.program, setup_.config.optimizer, config.steps, config.accumulation);
  stepper.skip_saturated(gradients_.skips_saturated());
  stepper.set_watch(watch_.get());
  const data::SampleOrder order(config.seed, setup_.train.samples());
  data::LoaderOptions loading;
  loading.rows = config.micro_batch;
  loading.start = progress_.position;
  loading.depth = static_cast<int>(setup_.config.data.prefetch);
  loading.workers = static_cast<int>(setup_.config.data.workers);
  data::Loader loader(setup_.train, order, loading);
  const BatchAdapter adapter(config.micro_batch, setup_.seq_len,
                             setup_.config.data.isolate_documents);
  const MicroBatchSource source = [&] {
    const auto begin = Clock::now();
    const data::Batch& batch = loader.next();
    data_ms_ += ms_since(begin);
    return MicroBatch{adapter.adapt(batch), batch.counted};
  };
  const std::int64_t end =
      options_.stop_at > 0 ? std::min(options_.stop_at, config.steps) : config.steps;
  step_times_.reserve(kMaxStepTimes);

  const InterruptScope interrupts;
  step_begin_ = Clock::now();
  while (progress_.step < end && InterruptScope::requested() == 0) {
    one_step(stepper, source);
    after_step();
  }
  write_trace();
  save(true);
}

void Trainer::summarise() {
  summary_.last_step = progress_.step;
  summary_.finished = progress_.step == train_config().steps;
  summary_.predicted_step_ms = prepared_.plan.predicted.step_ms;
  summary_.peak_rss_bytes = peak_resident_bytes();
  if (!step_times_.empty()) {
    const auto middle = step_times_.begin() + static_cast<std::ptrdiff_t>(step_times_.size() / 2);
    std::nth_element(step_times_.begin(), middle, step_times_.end());
    summary_.measured_step_ms = static_cast<double>(*middle);
  }
  const std::int64_t steps = summary_.last_step - summary_.first_step;
  nlohmann::ordered_json json = {
      {"first_step", summary_.first_step},
      {"last_step", summary_.last_step},
      {"finished", summary_.finished},
      {"loss", std::isfinite(summary_.loss) ? nlohmann::ordered_json(summary_.loss) : nullptr},
      {"val_loss", nullptr},
      {"predicted_step_ms", summary_.predicted_step_ms},
      {"measured_step_ms", summary_.measured_step_ms},
      {"planned_bytes", prepared_.plan.total_bytes()},
      {"peak_rss_bytes", summary_.peak_rss_bytes},
      {"steps_without_labels", progress_.steps_without_labels},
      {"steps_non_finite", progress_.steps_non_finite},
      {"loss_scale", gradients_.scale()},
      {"guard_ms_per_step", guard_ms_ / std::max<double>(1, static_cast<double>(steps))},
      {"snapshot", summary_.snapshot}};
  if (summary_.val_loss) json["val_loss"] = *summary_.val_loss;
  write_file((fs::path(options_.out) / "summary.json").string(), json.dump(2) + "\n");
}

TrainSummary Trainer::run() {
  open_run_directory();
  find_start();
  summary_.first_step = progress_.step;
  prepare();
  open_sinks();
  train_steps();
  hub_.close();
  summarise();
  log::set_file("");
  return summary_;
}

}  // namespace

TrainSummary train(RunConfig config, const TrainOptions& options) {
  return Trainer(std::move(config), options).run();
}

}  // namespace belay
