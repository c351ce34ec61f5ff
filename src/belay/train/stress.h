#pragma once
// The stress suite: a small model trained on the engine while a script makes gradients grow. Same
// script, data, weights and schedule in f32 and in f16 without loss scaling, with the usual dynamic
// loss scaler and with the guard in front of it; what differs is what each makes of it.
//
// A run is a miniature: intervals of loss scaling and guard are a fortieth (growth 2000 -> 50
// steps) or what is nearest to it, everything else has the configuration's defaults.

#include <cstdint>
#include <functional>
#include <string>

#include "belay/precision/precision_config.h"
#include "belay/train/stress_script.h"

namespace belay {

enum class StressProtection : std::uint8_t { f32, plain, scaler, guard };

std::string_view name_of(StressProtection protection);

struct StressOptions {
  std::int64_t steps = 2000;  // at least kFewestStressSteps
  std::uint64_t seed = 1;
  // Is told the step now and then; may be empty.
  std::function<void(std::int64_t)> progress;
};

struct StressResult {
  std::int64_t survived = 0;  // steps done; the run ended early if fewer than were wanted
  std::int64_t skipped = 0;
  std::int64_t first_skip = 0;  // step; 0: none
  std::int64_t lowered = 0;     // halvings before an overflow
  double lowest_scale = 0;
  double last_scale = 0;
  double val_loss = 0;  // of the weights that the run ended with, nats a token
  double perplexity = 0;

  friend bool operator==(const StressResult&, const StressResult&) = default;
};

// Loss scaling and guard of a run, resolved.
PrecisionConfig stress_precision(StressProtection protection);

// Ends early by the rule of training: max_skips skipped steps in a row at a scale that cannot fall.
StressResult run_stress(StressScenario scenario, StressProtection protection,
                        const StressOptions& options);

}  // namespace belay
