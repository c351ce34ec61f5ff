#pragma once
// Between a running program and a snapshot.

#include <string>

#include "belay/snapshot/snapshot.h"
#include "belay/train/run_setup.h"

namespace belay {

// Where a run stands. Everything else of its state is in the parameters and moments.
struct Progress {
  std::int64_t step = 0;      // steps done
  std::int64_t updates = 0;   // of those, the ones that changed the parameters
  std::int64_t tokens = 0;    // row positions trained on
  std::int64_t position = 0;  // samples taken from the order
  std::int64_t steps_without_labels = 0;
  std::int64_t steps_non_finite = 0;
  std::string loss_scale_state;      // GradientProtection's; filled in when a snapshot is taken
  std::string measured_compression;  // Replicas'; likewise
};

SnapshotState snapshot_state(const RunSetup& setup, const Progress& progress);
SnapshotSource snapshot_source(Program& program);

// Which optimizer settings the user gave with --set: those may differ from the snapshot's.
struct ResumeOptions {
  bool allow_new_optimizer = false;
};

// Reads the state and compares what must not change: data order (seed, samples), batch, compute
// dtype. A different learning-rate schedule or optimizer is refused with both values unless it was
// asked for, and is then logged. Does not touch the program.
SnapshotState check_resume(const std::string& dir, const RunSetup& setup,
                           const ResumeOptions& options);
Progress progress_of(const SnapshotState& state, const RunSetup& setup);
// Verifies and loads weights and moments.
void load_into(const std::string& dir, const RunSetup& setup, Program& program);

}  // namespace belay
