#pragma once
// The Plan in its first form: what one step needs and will take, as data. Written to plan.json.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "belay/device/matmul_choice.h"

namespace belay {

struct MemoryItem {
  std::string name;  // "parameters", "gradients", "activations", ...
  std::size_t bytes = 0;
};

// One kind of operator call within a step.
struct PlannedOp {
  std::string op;
  std::string kernel;
  std::string tag;         // forward, backward, optimizer
  std::string shape;       // of matrix products: MatmulKey::text()
  std::int64_t calls = 0;  // per step
  double flops = 0;        // per call
  double bytes = 0;        // per call, compulsory traffic
  double seconds = 0;      // per call, from measured rates; 0: not measured
};

struct StepPrediction {
  double forward_ms = 0;
  double backward_ms = 0;
  double optimizer_ms = 0;
  double step_ms = 0;
  double tokens_per_s = 0;
};

struct Plan {
  std::string device;
  int threads = 0;
  std::string dtype;
  std::int64_t parameters = 0;
  std::int64_t micro_batch = 0;
  std::int64_t accumulation = 0;
  std::int64_t seq_len = 0;
  std::int64_t tokens_per_step = 0;  // of all ranks
  double model_flops_per_token = 0;
  std::vector<MemoryItem> memory;
  std::vector<std::pair<MatmulKey, MatmulChoice>> matmuls;
  std::vector<PlannedOp> ops;
  StepPrediction predicted;

  [[nodiscard]] std::size_t total_bytes() const;
};

// Fills predicted from ops; a micro-batch's calls count accumulation times.
void predict(Plan& plan);

std::string plan_to_json(const Plan& plan);
// The choices alone, as a snapshot keeps them: JSON object of shape -> {kernel, flops_per_s}.
std::string choices_to_json(const MatmulChoices& choices);
// Reads the same back into `choices`; `source` names it in Error(data).
void choices_from_json(std::string_view text, std::string_view source, MatmulChoices& choices);

// Table of the memory plan for people, one class a line.
std::string describe_memory(const Plan& plan);
std::string human_bytes(double bytes);  // "1.99 GB", powers of 1000

}  // namespace belay
