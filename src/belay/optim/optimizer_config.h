#pragma once
// [optimizer]: AdamW, its learning-rate schedule and gradient clipping.

#include <array>
#include <cstdint>
#include <span>

#include "belay/base/config.h"
#include "belay/optim/schedule.h"

namespace belay {

struct OptimizerConfig {
  double lr = 1e-3;
  double min_lr = 1e-4;
  ScheduleKind schedule = ScheduleKind::cosine;
  std::int64_t warmup_steps = 0;
  std::int64_t decay_steps = 0;
  std::array<double, 2> betas = {0.9, 0.95};
  double eps = 1e-8;
  double weight_decay = 0.1;
  double clip_norm = 1.0;
  bool clip_power_of_two = false;
  double z_loss = 0.0;

  static constexpr std::string_view kSection = "optimizer";
  static std::span<const config::Field> fields();

  [[nodiscard]] ScheduleConfig schedule_of(std::int64_t steps) const {
    return {schedule, lr, min_lr, warmup_steps, steps, decay_steps};
  }
};

// Error(usage) when clip_power_of_two is on and clip_norm is not one, naming the nearest that are.
void check_clipping(const OptimizerConfig& config);

}  // namespace belay
