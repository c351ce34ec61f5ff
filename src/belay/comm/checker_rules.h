#pragma once
// What the checker asks of single steps and of the results.

#include <string>
#include <vector>

#include "belay/comm/schedule.h"
#include "belay/comm/symbols.h"

namespace belay::comm {

// What is wrong with a step taken by itself; empty if nothing is.
std::string problem_of_step(const Step& step, const SymbolicMemory& memory, int rank, int ranks);

// What is wrong with what all ranks hold in the end; empty if nothing is.
std::string problem_of_results(const Schedule& schedule,
                               const std::vector<SymbolicMemory>& memories, bool order_stable);

}  // namespace belay::comm
