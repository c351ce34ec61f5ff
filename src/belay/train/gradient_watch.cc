#include "belay/train/gradient_watch.h"

#include <cmath>
#include <filesystem>

#include "belay/base/error.h"
#include "belay/base/log.h"

namespace belay {
namespace {

// Whose numbers broke.
std::string rank_name(const StepResult& result) {
  return result.bad_rank < 0 ? "sum of all ranks" : fmt::format("rank {}", result.bad_rank);
}

}  // namespace

GradientWatch::GradientWatch(const RunSetup& setup)
    : setup_(setup),
      config_(resolved(setup.config.precision, setup.config.train.dtype)),
      protection_(config_, setup.table.names(), setup.config.train.global_batch * setup.seq_len) {}

void GradientWatch::restore(const std::string& state) {
  protection_.restore(state);
}

void GradientWatch::open_record(const std::string& run_dir, std::int64_t resumed_step) {
  if (!config_.record_norms) return;
  const std::filesystem::path path = std::filesystem::path(run_dir) / kGradientRecordName;
  record_ = std::make_unique<GradientRecordWriter>(path.string(), protection_.layers().names(),
                                                   config_.guard_limit, resumed_step);
}

bool GradientWatch::skips_saturated() const {
  return config_.loss_scale != LossScaleMode::none &&
         setup_.config.arithmetic.overflow == Overflow::saturate;
}

void GradientWatch::after_step(std::int64_t step, const StepResult& result, MetricHub& hub) {
  if (result.outcome == StepOutcome::no_labels) return;
  const double scale_before = scale();
  const bool updated = result.outcome == StepOutcome::updated;
  if (updated) {
    report(step, protection_.good_step(result.squares, result.divisor));
  } else {
    skipped(step, result, hub);
  }
  if (record_ != nullptr) record_->append(step, scale_before, protection_.norms());
  if (updated) return;
  const std::int64_t stuck = protection_.scaler().stuck();
  if (stuck < config_.max_skips) return;
  fail(ExitCode::numerics,
       "step {}, {}: {}; the last {} steps were skipped with the loss scale at "
       "{}, which cannot fall: lower optimizer.lr, raise optimizer.warmup_steps, or resume from an "
       "earlier snapshot",
       step, rank_name(result), complaint(result), stuck, scale());
}

void GradientWatch::skipped(std::int64_t step, const StepResult& result, MetricHub& hub) {
  const ScaleChange change =
      protection_.overflow(result.squares, result.divisor, std::isfinite(result.loss));
  SkippedStepMetrics metrics;
  metrics.step = step;
  metrics.tensor = metrics.layer = result.outcome == StepOutcome::saturated ? "f16" : "loss";
  if (result.outcome == StepOutcome::non_finite && result.bad_parameter >= 0) {
    metrics.tensor = setup_.table[result.bad_parameter].name;
    metrics.layer = layer_name(metrics.tensor);
  }
  metrics.rank = result.bad_rank;
  metrics.loss_scale = change.before;
  metrics.next_scale = change.after;
  hub.skipped_step(metrics);
  log::warn("step {}, {}: {}; the step is skipped, parameters stay as they are{}", step,
            rank_name(result), complaint(result),
            change.after < change.before
                ? fmt::format("; loss scale {} -> {}", change.before, change.after)
                : "");
}

std::string GradientWatch::complaint(const StepResult& result) const {
  if (result.outcome == StepOutcome::saturated) {
    return fmt::format("f16 results of {} operator calls saturated", result.ops.overflowing);
  }
  if (result.bad_parameter < 0) return "the loss is not finite";
  const std::string& tensor = setup_.table[result.bad_parameter].name;
  return fmt::format("the gradient of {} (layer {}) is not finite", tensor, layer_name(tensor));
}

void GradientWatch::report(std::int64_t step, const ScaleChange& change) {
  if (change.look != nullptr) warn_of_forecast(step, *change.look);
  if (change.after == change.before) return;
  if (change.after > change.before) {
    log::info("step {}: loss scale {} -> {}", step, change.before, change.after);
    return;
  }
  BELAY_CHECK(change.look != nullptr);  // nothing else lowers the scale after a good step
  if (change.look->forecast) {
    log::info("step {}: loss scale {} -> {}, before an overflow that the norms of {} forecast",
              step, change.before, change.after,
              protection_.layers().name(change.look->leaving_layer));
  } else {
    log::info(
        "step {}: loss scale {} -> {}, before an overflow: the norms of {} took {:.0f}% of "
        "the head room",
        step, change.before, change.after, protection_.layers().name(change.look->layer),
        100 * change.look->share);
  }
}

void GradientWatch::warn_of_forecast(std::int64_t step, const GuardLook& look) {
  if (look.endangered_in == 0) {
    warned_ = false;
    return;
  }
  if (warned_) return;
  warned_ = true;
  const LayerGroups& layers = protection_.layers();
  if (look.leaves_in > 0) {
    log::warn(
        "step {}: the gradient norm of {} is forecast to leave the head room of {} at a loss "
        "scale of {} in {} steps",
        step, layers.name(look.leaving_layer), config_.guard_limit, scale(), look.leaves_in);
  } else {
    log::warn(
        "step {}: the gradient norm of {} may leave the head room of {} at a loss scale of {} "
        "in {} steps (upper edge of the {:.0f}% band)",
        step, layers.name(look.endangered_layer), config_.guard_limit, scale(), look.endangered_in,
        100 * config_.forecast_confidence);
  }
}

}  // namespace belay
