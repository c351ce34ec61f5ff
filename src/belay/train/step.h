#pragma once
// One optimizer step: micro-batches, gradient norm, clipping, update. Loss and gradients are
// normalised by the number of counted tokens of the global batch: micro-batches add up sums, and
// the update divides, so how the batch is cut changes nothing but rounding.

#include <chrono>
#include <functional>
#include <span>

#include "belay/optim/optimizer_config.h"
#include "belay/parallel/batch_share.h"
#include "belay/precision/anomaly_watch.h"
#include "belay/train/program.h"

namespace belay {

// What a lane did since the last reset, by tag.
class StepClock final : public OpRecorder {
 public:
  using Clock = std::chrono::steady_clock;
  void record(const OpCall& call, Clock::time_point begin, Clock::time_point end) override;
  void reset() { forward_ms = backward_ms = optimizer_ms = 0; }
  explicit StepClock(OpRecorder* also = nullptr) : also_(also) {}
  // A second listener (a timeline), or null.
  void set_also(OpRecorder* also) { also_ = also; }

  double forward_ms = 0;
  double backward_ms = 0;
  double optimizer_ms = 0;

 private:
  OpRecorder* also_ = nullptr;
};

// A micro-batch and what the step needs to know about it.
struct MicroBatch {
  HostBatch host;
  std::int64_t counted = 0;  // targets >= 0
};

// Delivers the micro-batches of a step one after the other; what it returned stays valid until the
// next call.
using MicroBatchSource = std::function<MicroBatch()>;

enum class StepOutcome : std::uint8_t {
  updated,
  no_labels,   // nothing counted: parameters and moments untouched
  non_finite,  // a gradient is not finite: likewise
  saturated,   // an f16 result did not fit, in a run that skips such steps: likewise
};

// The numbers broke.
constexpr bool is_skipped(StepOutcome outcome) {
  return outcome == StepOutcome::non_finite || outcome == StepOutcome::saturated;
}

struct StepResult {
  StepOutcome outcome = StepOutcome::updated;
  double loss = 0;       // mean over the counted tokens, nats; meaningless with no_labels
  double grad_norm = 0;  // global, of the mean loss, before clipping
  double lr = 0;
  std::int64_t counted = 0;
  bool stop = false;  // some rank was asked to stop; see Stepper::ask_to_stop
  // With non_finite: the parameter whose gradient was the first to go wrong, the last in table
  // order, since backward walks the table from its end; -1 when the loss itself is not finite, as
  // the forward pass was first then.
  int bad_parameter = -1;
  // With non_finite and saturated: the first rank where that was so; -1 when none can be told:
  // only the sum over the ranks left the range, or sums are order-stable.
  int bad_rank = 0;
  // Sum of squares of each parameter's gradient as accumulated, and what turns such a gradient into
  // that of the mean loss. Empty with no_labels; valid until the next step.
  std::span<const double> squares;
  double divisor = 1;
  OpCounts ops;
};

class Stepper {
 public:
  // `steps` is the length of the schedule; `share` says which micro-batches the source delivers.
  // With several ranks each makes the same calls, and `communicator` sums what a step decides on;
  // the program's exchange sums the gradients. The references must outlive the stepper.
  Stepper(Program& program, const OptimizerConfig& optimizer, std::int64_t steps,
          const BatchShare& share = {}, comm::Communicator* communicator = nullptr);

  // Once a rank has called this, the results of all ranks say so from the same step on.
  void ask_to_stop() { asked_to_stop_ = true; }

  // Skip steps in which an f16 result saturated: where nothing becomes infinite, only the count of
  // such operators tells that gradients are wrong.
  void skip_saturated(bool skip) { skip_saturated_ = skip; }

  // Is told where each micro-batch begins; null: nobody is. Not owned.
  void set_watch(AnomalyWatch* watch) { watch_ = watch; }

  // Runs step number `step` (from 1) as the `updates`-th update so far. The loss is multiplied by
  // `multiplier`, a power of two, before backward, and the update divides by it: as long as nothing
  // leaves the range of its type, results are the same bit for bit.
  StepResult run(std::int64_t step, std::int64_t updates, const MicroBatchSource& source,
                 double multiplier = 1.0);

  [[nodiscard]] const ScheduleConfig& schedule() const { return schedule_; }

 private:
  Program& program_;
  const OptimizerConfig& optimizer_;
  ScheduleConfig schedule_;
  BatchShare share_;
  comm::Communicator* communicator_;
  StableScalar stable_loss_;
  AnomalyWatch* watch_ = nullptr;
  bool skip_saturated_ = false;
  bool asked_to_stop_ = false;

  void sum_over_ranks(double& loss_sum, StepResult& result);
  [[nodiscard]] int find_bad_rank(bool own_loss_is_finite);
  void add_stable_loss();
  StepResult run_counted(std::int64_t step, std::int64_t updates, const MicroBatchSource& source,
                         double multiplier);
};

// Clip coefficient for a norm: min(1, clip / (norm + 1e-6)) as in PyTorch's clip_grad_norm_; clip 0
// means no clipping. With `power_of_two` the coefficient is rounded down to a power of two: scaling
// by it is exact in every floating-point type.
double clip_coefficient(double norm, double clip, bool power_of_two = false);

}  // namespace belay
