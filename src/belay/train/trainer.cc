#include "belay/train/trainer.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "belay/base/error.h"
#include "belay/base/file.h"
#include "belay/base/log.h"
#include "belay/base/stopwatch.h"
#include "belay/observe/memory.h"
#include "belay/observe/sinks.h"
#include "belay/snapshot/convert.h"
#include "belay/train/batch_source.h"
#include "belay/train/evaluate.h"
#include "belay/train/gradient_watch.h"
#include "belay/train/interrupt.h"
#include "belay/train/link_watch.h"
#include "belay/train/model_source.h"
#include "belay/train/prepare_ranks.h"
#include "belay/train/replicas.h"
#include "belay/train/resume.h"
#include "belay/train/run_directory.h"
#include "belay/train/sharded_source.h"
#include "belay/train/step.h"
#include "belay/train/step_times.h"
#include "belay/train/step_trace.h"

namespace belay {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

class Trainer {
 public:
  Trainer(RunConfig config, const TrainOptions& options)
      : options_(options),
        ranks_(options.communicator),
        setup_(set_up_run(std::move(config), ranks_)),
        gradients_(setup_),
        hub_(setup_.config.train.log_every),
        replicas_(ranks_, setup_.config),
        links_(ranks_, setup_.config.comm) {
    setup_.ranks = ranks_.size();
  }

  TrainSummary run();

 private:
  [[nodiscard]] const TrainConfig& train_config() const { return setup_.config.train; }
  void find_start();
  void go_on_from_snapshot();
  void prepare();
  void load_or_initialise();
  void open_sinks();
  void train_steps();
  void one_step(Stepper& stepper, const MicroBatchSource& source);
  void after_step();
  void report_anomaly() const;
  void report_outcome(const StepResult& result);
  void run_evaluation();
  void save(bool last);
  void write_snapshot(bool last, const ResidualFile& residuals, const SnapshotSource& source);
  void write_trace();
  void summarise();

  TrainOptions options_;
  const RankGroup ranks_;
  RunSetup setup_;
  GradientWatch gradients_;
  MetricHub hub_;
  Progress progress_;
  std::unique_ptr<RunLock> lock_;
  std::string resume_dir_;  // empty: a new run
  Prepared prepared_;
  Replicas replicas_;
  LinkWatch links_;
  StepClock clock_;
  std::unique_ptr<AnomalyWatch> watch_;  // anomaly mode
  std::unique_ptr<StepTrace> trace_;
  std::unique_ptr<GrowthWatch> growth_;
  double data_ms_ = 0;
  double guard_ms_ = 0;  // over all steps
  Clock::time_point step_begin_;
  std::int64_t last_saved_ = -1;
  StepTimes step_times_;
  bool stop_ = false;
  TrainSummary summary_;
};

void Trainer::find_start() {
  resume_dir_ = options_.resume;
  if (resume_dir_ == "auto") {
    ranks_.together([&] { resume_dir_ = ranks_.first() ? newest_snapshot(options_.out) : ""; });
    resume_dir_ = ranks_.share(resume_dir_);
  }
  if (!resume_dir_.empty()) ranks_.together([&] { go_on_from_snapshot(); });
}

void Trainer::go_on_from_snapshot() {
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
  prepared_ = prepare_ranks(ranks_, options_.host, setup_, replicas_, options_.out);
  replicas_.connect(*setup_.device, *prepared_.program, progress_.measured_compression);
  ranks_.together([&] {
    if (!ranks_.first()) return;
    const std::string space =
        snapshot_space_warning(options_.out, setup_.table, replicas_.residual_bytes());
    if (!space.empty()) log::warn("{}", space);
  });
  ranks_.together([&] { load_or_initialise(); });
  replicas_.share_weights(*prepared_.program);
}

void Trainer::load_or_initialise() {
  Program& program = *prepared_.program;
  if (!resume_dir_.empty()) {
    load_into(resume_dir_, setup_, program);
    replicas_.restore_residuals(resume_dir_);
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
  if (options_.timeline_first > 0 && ranks_.first()) {
    trace_ =
        std::make_unique<StepTrace>(options_.out, options_.timeline_first, options_.timeline_last,
                                    static_cast<std::size_t>(setup_.config.observe.timeline_spans));
  }
  growth_ = std::make_unique<GrowthWatch>(setup_.config.observe.memory_growth_warning);
}

void Trainer::open_sinks() {
  if (!ranks_.first()) return;
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
  ranks_.alike([&] { gradients_.after_step(step, result, hub_); });
  guard_ms_ += ms_since(begin);
}

void Trainer::one_step(Stepper& stepper, const MicroBatchSource& source) {
  const std::int64_t step = progress_.step + 1;
  if (trace_ != nullptr) clock_.set_also(trace_->recorder_of(step));
  clock_.reset();
  data_ms_ = 0;
  const double scale = gradients_.scale();
  replicas_.begin_step(step, gradients_.multiplier());
  links_.begin_step();
  if (InterruptScope::requested() != 0) stepper.ask_to_stop();
  const StepResult result =
      stepper.run(step, progress_.updates + 1, source, gradients_.multiplier());
  replicas_.end_step(result.outcome == StepOutcome::updated);
  progress_.step = step;
  stop_ = result.stop;
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
  metrics.comm_ms = replicas_.times().busy_ms;
  metrics.comm_exposed_ms = replicas_.times().exposed_ms;
  metrics.comm_bytes = static_cast<std::int64_t>(replicas_.traffic().sent_bytes);
  metrics.comm_dense_bytes = static_cast<std::int64_t>(replicas_.traffic().dense_bytes);
  summary_.comm_bytes += replicas_.traffic().sent_bytes;
  summary_.comm_dense_bytes += replicas_.traffic().dense_bytes;
  metrics.model_flops = prepared_.plan.model_flops_per_token * static_cast<double>(step_tokens);
  metrics.rss_bytes = resident_bytes();
  metrics.low_precision_ops = result.ops.low_precision;
  metrics.full_precision_ops = result.ops.full_precision;
  metrics.overflowing_ops = result.ops.overflowing;
  metrics.step_ms = ms_since(step_begin_);
  step_begin_ = Clock::now();
  hub_.step(metrics);
  links_.after_step(step, hub_);
  step_times_.add(metrics.step_ms);
  if (result.counted > 0) summary_.loss = result.loss;
  if (watch_ != nullptr && watch_->found()) report_anomaly();
  report_outcome(result);
  if (const auto rate = growth_->add(step, metrics.rss_bytes)) {
    log::warn("step {}: resident memory grows by {:.1f} MiB per 1000 steps", step, *rate);
  }
}

// Every rank sees its own operators; those that are silent otherwise speak up.
void Trainer::report_anomaly() const {
  if (ranks_.first()) {
    log::warn("anomaly: {}", watch_->description());
  } else {
    log::error("rank {}: anomaly: {}", ranks_.rank(), watch_->description());
  }
}

void Trainer::write_trace() {
  if (trace_ == nullptr) return;
  clock_.set_also(nullptr);
  trace_->write(progress_.step);
}

void Trainer::run_evaluation() {
  const EvaluationResult result =
      evaluate(*prepared_.program, *setup_.val,
               {train_config().eval_batches, setup_.config.data.isolate_documents}, ranks_);
  summary_.val_loss = result.tokens > 0 ? std::optional(result.loss) : std::nullopt;
  hub_.evaluation({progress_.step, result.loss, result.tokens, result.ms});
}

void Trainer::save(bool last) {
  if (last_saved_ == progress_.step) return;
  last_saved_ = progress_.step;
  const ResidualFile residuals = replicas_.collect_residuals(options_.out);
  save_together(ranks_, replicas_.sharded(), *prepared_.program,
                [&](const SnapshotSource& source) { write_snapshot(last, residuals, source); });
  // Whether the first rank has, on all of them.
  double saved = ranks_.first() && last_saved_ == progress_.step ? 1 : 0;
  ranks_.sum({&saved, 1});
  if (saved == 0) last_saved_ = -1;
}

void Trainer::write_snapshot(bool last, const ResidualFile& residuals,
                             const SnapshotSource& source) {
  const auto begin = Clock::now();
  progress_.loss_scale_state = gradients_.state();
  progress_.measured_compression = replicas_.measured_compression();
  SnapshotOptions options;
  options.keep_last = train_config().keep_snapshots;
  options.tokenizer = setup_.train.tokenizer();
  try {
    residuals.attach_to(options);
    summary_.snapshot = save_snapshot(options_.out, program_config(setup_).model, setup_.table,
                                      snapshot_state(setup_, progress_), source, options);
  } catch (const Error& error) {
    if (last || setup_.config.snapshot.on_failure == OnFailure::stop ||
        error.code() == ExitCode::communication) {
      throw;
    }
    log::error("step {}: the snapshot failed and training goes on: {}", progress_.step,
               error.what());
    last_saved_ = -1;
    return;
  }
  const std::uint64_t bytes = snapshot_bytes(setup_.table) + residuals.bytes();
  hub_.snapshot({progress_.step, static_cast<std::int64_t>(bytes), ms_since(begin)});
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
  Stepper stepper(*prepared_.program, setup_.config.optimizer, config.steps, replicas_.share(),
                  ranks_.communicator());
  stepper.skip_saturated(gradients_.skips_saturated());
  stepper.set_watch(watch_.get());
  const data::SampleOrder order(config.seed, setup_.train.samples());
  data::LoaderOptions loading = replicas_.share().loading(progress_.position);
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

  const InterruptScope interrupts;
  step_begin_ = Clock::now();
  // One rank stops at once; several agree within the next step.
  const auto asked = [&] { return ranks_.size() == 1 && InterruptScope::requested() != 0; };
  while (progress_.step < end && !stop_ && !asked()) {
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
  summary_.measured_step_ms = step_times_.median();
  summary_.planned_bytes = static_cast<std::int64_t>(prepared_.plan.total_bytes());
  summary_.peak_rss_bytes = peak_resident_bytes();
  summary_.steps_without_labels = progress_.steps_without_labels;
  summary_.steps_non_finite = progress_.steps_non_finite;
  summary_.loss_scale = gradients_.scale();
  const auto steps = static_cast<double>(summary_.last_step - summary_.first_step);
  summary_.guard_ms_per_step = guard_ms_ / std::max(1.0, steps);
  summary_.ranks = ranks_.size();
  if (!ranks_.first()) return;
  write_file((fs::path(options_.out) / "summary.json").string(), to_json(summary_));
}

TrainSummary Trainer::run() {
  ranks_.together([&] {
    if (ranks_.first()) lock_ = open_run_directory(options_.out, options_.resume == "auto");
  });
  ranks_.keep_flight_records(options_.out);
  find_start();
  summary_.first_step = progress_.step;
  prepare();
  ranks_.together([&] { open_sinks(); });
  train_steps();
  hub_.close();
  summarise();
  if (ranks_.first()) log::set_file("");
  return summary_;
}

}  // namespace

TrainSummary train(RunConfig config, const TrainOptions& options) {
  return Trainer(std::move(config), options).run();
}

}  // namespace belay
