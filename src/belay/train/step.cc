#include "belay/train/step.h"

#include <algorithm>
#include <array>
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
                 const BatchShare& share, comm::Communicator* communicator)
    : program_(program),
      optimizer_(optimizer),
      schedule_(optimizer.schedule_of(steps)),
      share_(share),
      communicator_(communicator) {
  check_schedule(schedule_);
}

StepResult Stepper::run(std::int64_t step, std::int64_t updates, const MicroBatchSource& source,
                        double multiplier) {
  program_.lane().reset_counts();
  StepResult result = run_counted(step, updates, source, multiplier);
  const std::int64_t elsewhere = result.ops.overflowing;
  result.ops = program_.lane().counts();
  result.ops.overflowing += elsewhere;
  return result;
}

// What decides over a step, in one vector: the same on every rank afterwards. result.ops gets the
// overflowing operators of the other ranks.
void Stepper::sum_over_ranks(double& loss_sum, StepResult& result) {
  result.stop = asked_to_stop_;
  if (communicator_ == nullptr) return;
  const std::int64_t here = program_.lane().counts().overflowing;
  const bool summed = program_.sums_stably();
  std::array<double, 4> facts = {summed ? 0.0 : loss_sum, static_cast<double>(result.counted),
                                 static_cast<double>(here), asked_to_stop_ ? 1.0 : 0.0};
  communicator_->all_reduce(facts.data(), facts.data(), std::ssize(facts), DType::f64,
                            comm::ReduceOp::sum);
  if (!summed) loss_sum = facts[0];
  result.counted = static_cast<std::int64_t>(facts[1]);
  result.ops.overflowing = static_cast<std::int64_t>(facts[2]) - here;
  result.stop = facts[3] > 0;
}

// Every rank calls this in the same steps.
int Stepper::find_bad_rank(bool own_loss_is_finite) {
  if (communicator_ == nullptr) return 0;
  if (program_.sums_stably()) return -1;  // what each rank had is gone, micro-batch by micro-batch
  Lane& lane = program_.lane();
  const bool bad = !own_loss_is_finite || (skip_saturated_ && lane.counts().overflowing > 0) ||
                   !program_.own_gradients_finite();
  const int ranks = communicator_->size();
  auto first = static_cast<double>(bad ? communicator_->rank() : ranks);
  communicator_->all_reduce(&first, &first, 1, DType::f64, comm::ReduceOp::min);
  return first < ranks ? static_cast<int>(first) : -1;
}

// The loss of a micro-batch of every rank, in the order of the ranks.
void Stepper::add_stable_loss() {
  double loss = program_.read_loss(program_.lane());
  program_.clear_loss(program_.lane());
  if (communicator_ != nullptr) {
    communicator_->all_reduce(&loss, &loss, 1, DType::f64, comm::ReduceOp::sum);
  }
  stable_loss_.add(loss);
}

StepResult Stepper::run_counted(std::int64_t step, std::int64_t updates,
                                const MicroBatchSource& source, double multiplier) {
  Lane& lane = program_.lane();
  StepResult result;
  result.lr = learning_rate(schedule_, step);
  program_.clear_loss(lane);
  program_.set_loss_multiplier(multiplier);
  const bool stable = program_.sums_stably();
  const std::int64_t mine = share_.count();
  // Ranks that have one micro-batch less than others are done earlier, unless all meet in each.
  const std::int64_t rounds = program_.joins_every_round() ? share_.rounds() : mine;
  for (std::int64_t micro = 0; micro < rounds; ++micro) {
    if (micro >= mine) {
      program_.join_last_round(lane);
      lane.wait();
      if (stable) add_stable_loss();
      continue;
    }
    const MicroBatch batch = source();
    if (watch_ != nullptr) watch_->begin(step, share_.number(micro));
    const MicroBatchPlace place{static_cast<std::uint32_t>(step),
                                static_cast<std::uint64_t>(share_.number(micro) * batch.host.rows),
                                micro + 1 == rounds, micro == 0};
    program_.run_micro_batch(lane, batch.host, place, true);
    lane.wait();  // the source may reuse its memory
    result.counted += batch.counted;
    if (stable) add_stable_loss();
  }
  double loss_sum = stable ? stable_loss_.finish() : program_.read_loss(lane);
  const bool own_loss_is_finite = std::isfinite(loss_sum);
  sum_over_ranks(loss_sum, result);
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
  const bool saturated = skip_saturated_ && lane.counts().overflowing + result.ops.overflowing > 0;
  if (result.bad_parameter >= 0 || !loss_is_finite || saturated) {
    if (!loss_is_finite) result.bad_parameter = -1;
    result.bad_rank = find_bad_rank(own_loss_is_finite);
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
