#pragma once
// What a training run comes to.

#include <cstdint>
#include <optional>
#include <string>

namespace belay {

struct TrainSummary {
  std::int64_t first_step = 0;  // the step that the process started after
  std::int64_t last_step = 0;
  bool finished = false;  // all of train.steps done
  double loss = 0;        // of the last step with labels
  std::optional<double> val_loss;
  double predicted_step_ms = 0;
  double measured_step_ms = 0;     // median
  std::int64_t planned_bytes = 0;  // of one rank
  std::int64_t peak_rss_bytes = 0;
  std::int64_t steps_without_labels = 0;
  std::int64_t steps_non_finite = 0;
  double loss_scale = 1;
  double guard_ms_per_step = 0;
  int ranks = 1;
  double comm_bytes = 0;        // that a rank sent for the sums of gradients
  double comm_dense_bytes = 0;  // and would have sent without compression
  std::string snapshot;         // the last one saved; empty: none
};

// summary.json.
std::string to_json(const TrainSummary& summary);

}  // namespace belay
