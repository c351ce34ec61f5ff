#pragma once
// Loss on held-out data. Every counted token weighs the same, so the result does not depend on the
// batch size.

#include "belay/data/dataset.h"
#include "belay/train/program.h"
#include "belay/train/rank_group.h"

namespace belay {

struct EvaluationResult {
  double loss = 0;          // mean over the counted tokens, nats; of none: not a number
  std::int64_t tokens = 0;  // counted
  double ms = 0;
};

struct EvaluationOptions {
  std::int64_t batches = 0;  // of the program's micro-batch; 0: all the data
  bool isolate_documents = true;
};

// Reads from the first sample on; the last, partial batch is included. Touches no parameter.
// Ranks take batches in turn, and all get the result.
EvaluationResult evaluate(Program& program, const data::Dataset& dataset,
                          const EvaluationOptions& options,
                          const RankGroup& ranks = RankGroup(nullptr));

}  // namespace belay
