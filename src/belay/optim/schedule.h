#pragma once
// Learning-rate schedules as pure functions of the step, so a resumed run needs no state but the
// step number. Steps count from 1. All kinds rise linearly over the warm-up: step s <= w uses
// lr * s / w. After it, with progress p = (s - w) / (total - w):
//   constant  lr
//   linear    lr - (lr - min_lr) p
//   cosine    min_lr + (lr - min_lr) (1 + cos(pi p)) / 2     Loshchilov & Hutter, arXiv:1608.03983
//   wsd       lr until total - decay steps, then linear to min_lr at total; warm-up, stable, decay:
//             Hu et al., arXiv:2404.06395
// From step total on, all but constant stay at min_lr.

#include <cstdint>
#include <optional>
#include <string_view>

namespace belay {

enum class ScheduleKind : std::uint8_t { constant, linear, cosine, wsd };

// "constant", "linear", "cosine", "wsd": the spelling of the config file.
std::string_view name_of(ScheduleKind kind);
std::optional<ScheduleKind> parse_schedule(std::string_view name);

struct ScheduleConfig {
  ScheduleKind kind = ScheduleKind::cosine;
  double lr = 1e-3;  // the peak
  double min_lr = 0.0;
  std::int64_t warmup_steps = 0;
  std::int64_t total_steps = 0;
  std::int64_t decay_steps = 0;  // wsd only

  friend bool operator==(const ScheduleConfig&, const ScheduleConfig&) = default;
};

// Throws Error(usage) naming the values that do not fit together: a rate that is negative or not
// finite, min_lr above lr, a warm-up longer than the run, a wsd decay that overlaps the warm-up.
void check_schedule(const ScheduleConfig& config);

// The rate that step `step` uses (step >= 1). The config must have passed check_schedule().
double learning_rate(const ScheduleConfig& config, std::int64_t step);

}  // namespace belay
