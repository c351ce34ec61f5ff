#pragma once
// From a configuration to a program ready to run: records the step on a dry device, chooses
// kernels, sizes the arenas, allocates, and predicts the step time from measured operator times.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "belay/plan/plan.h"
#include "belay/train/program.h"

namespace belay {

struct PlanningOptions {
  std::int64_t accumulation = 1;
  std::int64_t step_tokens = 0;    // of all ranks; 0: those of this one
  std::string matmul = "auto";     // or the name of one candidate for all products
  std::string cache;               // file of measured choices; empty: the user's cache directory
  bool choose = true;              // false: device.matmul_choices() is already what shall be used
  bool calibrate = true;           // false: no predicted times
  int ranks_on_host = 1;           // that take as much memory each
  std::size_t exchange_bytes = 0;  // for what ranks send each other
  std::function<void(const std::string&)> progress;  // one line per slow thing done; may be empty
};

struct Prepared {
  Plan plan;
  std::unique_ptr<Program> program;  // parameters zero; gradients zero
};

// Error(capacity) when the machine's memory does not hold the plan, saying by how much.
Prepared prepare_program(Device& device, const ParameterTable& table, const ProgramConfig& config,
                         const PlanningOptions& options);

// The same refusal, from sizes before kernels are chosen; allocates none of it.
void require_plan_fits(const Device& device, const ParameterTable& table,
                       const ProgramConfig& config, const PlanningOptions& options);

// What a step is made of, without memory for it and without measuring anything: its calls, on
// operands that nobody may touch, and its memory by class.
struct DryStep {
  std::vector<OpCall> calls;
  std::vector<MemoryItem> memory;
};
DryStep dry_step(const Device& device, const ParameterTable& table, const ProgramConfig& config,
                 std::size_t exchange_bytes = 0);

}  // namespace belay
