#include "belay/optim/optimizer_config.h"

#include <cmath>

#include "belay/base/error.h"

namespace belay {
namespace {

// In the order of ScheduleKind.
constexpr std::string_view kSchedules[] = {"constant", "linear", "cosine", "wsd"};

}  // namespace

std::span<const config::Field> OptimizerConfig::fields() {
  using config::at_least;
  using config::field;
  static const config::Field kFields[] = {
      field<&OptimizerConfig::lr>("lr", "peak learning rate", at_least(0)),
      field<&OptimizerConfig::min_lr>("min_lr", "learning rate at the last step", at_least(0)),
      field<&OptimizerConfig::schedule>("schedule", "shape of the learning rate after warm-up",
                                        config::one_of(kSchedules)),
      field<&OptimizerConfig::warmup_steps>("warmup_steps", "steps of linear rise to lr",
                                            at_least(0)),
      field<&OptimizerConfig::decay_steps>("decay_steps", "wsd only: length of the final decay",
                                           at_least(0)),
      field<&OptimizerConfig::betas>("betas", "decay of the two moments", config::below(0, 1)),
      field<&OptimizerConfig::eps>("eps", "added to the root of the second moment",
                                   config::positive()),
      field<&OptimizerConfig::weight_decay>(
          "weight_decay", "decoupled decay of matrices; biases and norms have none", at_least(0)),
      field<&OptimizerConfig::clip_norm>(
          "clip_norm", "largest global gradient norm; 0: no clipping", at_least(0)),
      field<&OptimizerConfig::clip_power_of_two>("clip_power_of_two",
                                                 "round the clipping factor down to a power of "
                                                 "two, which scales exactly; clip_norm must be "
                                                 "one too"),
      field<&OptimizerConfig::z_loss>("z_loss", "weight of the squared log-partition; 0: off",
                                      at_least(0)),
  };
  return kFields;
}

void check_clipping(const OptimizerConfig& config) {
  if (!config.clip_power_of_two || config.clip_norm == 0) return;
  const double below = std::exp2(std::floor(std::log2(config.clip_norm)));
  if (below == config.clip_norm) return;
  fail(ExitCode::usage,
       "optimizer.clip_norm {} is no power of two, as clip_power_of_two asks for; take {} or {}",
       config.clip_norm, below, 2 * below);
}

}  // namespace belay
