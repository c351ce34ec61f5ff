#pragma once
// Trainer: executes a plan step by step, records what happened, evaluates and saves.

#include <string>

#include "belay/comm/communicator.h"
#include "belay/parallel/host_place.h"
#include "belay/train/run_config.h"
#include "belay/train/summary.h"

namespace belay {

struct TrainOptions {
  std::string out;     // run directory
  std::string resume;  // "", "auto" (newest good snapshot of `out`, if any) or a directory
  bool allow_new_optimizer = false;  // see ResumeOptions
  std::int64_t stop_at = 0;          // save and stop after this step; 0: at the end
  std::int64_t timeline_first = 0;   // steps [first, last] to trace; 0: none
  std::int64_t timeline_last = 0;
  // Of a data-parallel run: every rank calls train() with the same configuration and options. The
  // first one writes the run directory. Null: one rank.
  comm::Communicator* communicator = nullptr;
  HostPlace host;  // whose memory the ranks there share
};

// Runs the training until the end, stop_at, or SIGINT/SIGTERM (which save first). Writes the run
// directory: config.toml, plan.json, metrics.jsonl, TensorBoard events, log.txt, snapshots/,
// summary.json. Throws Error with the documented exit code.
TrainSummary train(RunConfig config, const TrainOptions& options);

}  // namespace belay
