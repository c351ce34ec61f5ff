#pragma once
// Trainer: executes a plan step by step, records what happened, evaluates and saves.

#include <optional>
#include <string>

#include "belay/train/run_config.h"

namespace belay {

struct TrainOptions {
  std::string out;     // run directory
  std::string resume;  // "", "auto" (newest good snapshot of `out`, if any) or a directory
  bool allow_new_optimizer = false;  // see ResumeOptions
  std::int64_t stop_at = 0;          // save and stop after this step; 0: at the end
  std::int64_t timeline_first = 0;   // steps [first, last] to trace; 0: none
  std::int64_t timeline_last = 0;
};

struct TrainSummary {
  std::int64_t first_step = 0;  // the step that the process started after
  std::int64_t last_step = 0;
  bool finished = false;  // all of train.steps done
  double loss = 0;        // of the last step with labels
  std::optional<double> val_loss;
  double predicted_step_ms = 0;
  double measured_step_ms = 0;  // median
  std::int64_t peak_rss_bytes = 0;
  std::string snapshot;  // the last one saved; empty: none
};

// Runs the training until the end, stop_at, or SIGINT/SIGTERM (which save first). Writes the run
// directory: config.toml, plan.json, metrics.jsonl, TensorBoard events, log.txt, snapshots/,
// summary.json. Throws Error with the documented exit code.
TrainSummary train(RunConfig config, const TrainOptions& options);

}  // namespace belay
