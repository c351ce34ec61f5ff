#pragma once
// How much of the communication of a training step is hidden behind computing, by the way in which
// gradients are exchanged, on links that are slowed until communication takes as long as computing.

#include <cstdint>
#include <string>
#include <vector>

#include "belay/comm/world.h"

namespace belay {

struct OverlapBench {
  std::string model = "llama-tiny";  // a preset
  std::int64_t rows = 32;            // of a micro-batch
  std::int64_t seq_len = 256;
  std::int64_t micro_batches = 8;  // per rank and step
  double bucket_mb = 0.05;
  int buckets = 4;
  int depth = 8;  // micro-batches under way in the pipeline
  int repetitions = 7;
  std::string matmul = "belay";
};

// Of one way to exchange gradients; times in ms, medians over the repetitions. Of the rank that
// takes longest, as is the step.
struct OverlapRow {
  std::string mode;
  double bandwidth = 0;   // of a link in each direction, bytes per second
  double bytes = 0;       // that a rank sends in a step
  double compute_ms = 0;  // the step without exchange
  double step_ms = 0;
  double comm_ms = 0;     // in collectives
  double exposed_ms = 0;  // step_ms - compute_ms
  double waited_ms = 0;   // in which the computing thread stood still for a bucket
  double hidden = 0;      // share of comm_ms: 1 - exposed_ms / comm_ms, from 0 to 1

  std::vector<double> hidden_of_each;  // repetition
};

struct OverlapReport {
  int ranks = 1;
  std::int64_t parameters = 0;
  std::vector<OverlapRow> rows;
};

// One row for each way; the pipeline is left out where a step has a single micro-batch per rank.
// Over the world's ranks; with one, over `threads` ranks that are threads of this process, each
// with one processor. Every rank of the world calls it; all get the report. Error(usage) for an
// unknown model.
OverlapReport bench_overlap(comm::World& world, int threads, const OverlapBench& options);

}  // namespace belay
