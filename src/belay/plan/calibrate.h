#pragma once
// Turns a recorded step into planned operators with measured times.

#include <span>
#include <vector>

#include "belay/device/device.h"
#include "belay/plan/plan.h"

namespace belay {

// Groups equal calls (operator, kernel, tag, size); those tagged other than "optimizer" happen
// `accumulation` times a step.
std::vector<PlannedOp> summarise(std::span<const OpCall> calls, std::int64_t accumulation);

// Times every group on `lane` by running some of the recorded calls, in their order, so that each
// finds the caches about as the step would leave them. The operands must be real; their contents
// are overwritten.
void calibrate(Lane& lane, std::span<const OpCall> calls, std::vector<PlannedOp>& ops);

// The distinct matrix products among the calls.
std::vector<MatmulKey> matmul_keys(std::span<const OpCall> calls);

}  // namespace belay
