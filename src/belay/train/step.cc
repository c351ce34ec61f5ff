#include "belay/train/step.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace belay {

void StepClock::record(const OpCall& call, Clock::time_point begin, Clock::time_point end) {
  const double ms = std::chrono::duration<double, std::milli>(end - begin).count();
  if (call.tag == "optimizer") {
    optimizer_ms += ms;
  } else if (call.tag == "backward") {
    backward_ms += ms;
  } else {
    forward_ms += ms;
  }
  if (also_ != nullptr) also_->record(call, begin, end);
}

double clip_coefficient(double norm, double clip, bool power_of_two) {
  const double coefficient = clip > 0 ? std::min(1.0, clip / (norm + 1e-6)) : 1.0;
  return power_of_two ? std::exp2(std::floor(std::log2(coefficient))) : coefficient;
}

Stepper::Stepper(Program& program, const OptimizerConfig& optimizer, std::int64_t steps,
                 std::int64_t accumulation)
    : program_(program),
      optimizer_(optimizer),
      schedule_(optimizer.schedule_of(steps)),
      accumulation_(accumulation) {
  check_schedule(schedule_);
}

StepResult Stepper::run(std::int64_t step, std::int64_t updates, const MicroBatchSource& source,
                        double multiplier) {
  program_.lane().reset_counts();
  StepResult result = run_counted(step, updates, source, multiplier);
  result.ops = program_.lane().counts();
  return result;
}

StepResult Stepper::run_counted(std::int64_t step, std::int64_t updates,
                                const MicroBatchSource& source, double multiplier) {
  Lane& lane = program_.lane();
  StepResult result;
  result.lr = learning_rate(schedule_, step);
  program_.clear_loss(lane);
  program_.set_loss_multiplier(multiplier);
  std::uint64_t first_row = 0;
  for (std::int64_t micro = 0; micro < accumulation_; ++micro) {
    const MicroBatch batch = source();
    if (watch_ != nullptr) watch_->begin(step, micro);
    program_.run_micro_batch(
        lane, batch.host, {static_cast<std::uint32_t>(step), first_row, micro + 1 == accumulation_},
        true);
    lane.wait();  // the source may reuse its memory
    first_row += static_cast<std::uint64_t>(batch.host.rows);
    result.counted += batch.counted;
  }
  const double loss_sum = program_.read_loss(lane);
  if (result.counted == 0) {
    // Gradients are exact zeros, unless an activation was not finite; AdamW must not decay weights
    // or move moments.
    result.outcome = StepOutcome::no_labels;
    result.loss = result.grad_norm = std::numeric_limits<double>::quiet_NaN();
    program_.clear_gradients(lane);
    lane.wait();
    return result;
  }
  const auto counted = static_cast<double>(result.counted);
  result.loss = loss_sum / counted;

  double squares = 0;
  result.squares = program_.read_gradient_squares(lane);
  result.divisor = counted * multiplier;
  for (std::size_t index = 0; index < result.squares.size(); ++index) {
    if (!std::isfinite(result.squares[index])) result.bad_parameter = static_cast<int>(index);
    squares += result.squares[index];
  }
  result.grad_norm = std::sqrt(squares) / result.divisor;
  const bool loss_is_finite = std::isfinite(result.loss);
  const bool saturated = skip_saturated_ && lane.counts().overflowing > 0;
  if (result.bad_parameter >= 0 || !loss_is_finite || saturated) {
    if (!loss_is_finite) result.bad_parameter = -1;
    result.outcome = saturated ? StepOutcome::saturated : StepOutcome::non_finite;
    program_.clear_gradients(lane);
    lane.wait();
    return result;
  }

  UpdateSettings update;
  update.lr = result.lr;
  update.beta1 = optimizer_.betas[0];
  update.beta2 = optimizer_.betas[1];
  update.eps = optimizer_.eps;
  update.weight_decay = optimizer_.weight_decay;
  update.step = updates;
  update.grad_scale =
      clip_coefficient(result.grad_norm, optimizer_.clip_norm, optimizer_.clip_power_of_two) /
      result.divisor;
  program_.update(lane, update);
  lane.wait();
  return result;
}

}  // namespace belay
