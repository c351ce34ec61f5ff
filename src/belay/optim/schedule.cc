#include "belay/optim/schedule.h"

#include <array>
#include <cmath>
#include <numbers>
#include <utility>

#include "belay/base/check.h"
#include "belay/base/error.h"

namespace belay {
namespace {

constexpr std::array<std::pair<ScheduleKind, std::string_view>, 4> kNames{{
    {ScheduleKind::constant, "constant"},
    {ScheduleKind::linear, "linear"},
    {ScheduleKind::cosine, "cosine"},
    {ScheduleKind::wsd, "wsd"},
}};

double progress(std::int64_t step, std::int64_t begin, std::int64_t end) {
  return static_cast<double>(step - begin) / static_cast<double>(end - begin);
}

}  // namespace

std::string_view name_of(ScheduleKind kind) {
  for (const auto& [known, name] : kNames) {
    if (known == kind) return name;
  }
  return "";
}

std::optional<ScheduleKind> parse_schedule(std::string_view name) {
  for (const auto& [kind, known] : kNames) {
    if (known == name) return kind;
  }
  return std::nullopt;
}

void check_schedule(const ScheduleConfig& config) {
  const auto bad_rate = [](double rate) { return !std::isfinite(rate) || rate < 0; };
  if (bad_rate(config.lr) || bad_rate(config.min_lr)) {
    fail(ExitCode::usage, "learning rates must be finite and not negative: lr {}, min_lr {}",
         config.lr, config.min_lr);
  }
  if (config.min_lr > config.lr) {
    fail(ExitCode::usage, "min_lr {} is above lr {}; lower min_lr or raise lr", config.min_lr,
         config.lr);
  }
  if (config.warmup_steps < 0 || config.total_steps < 0 || config.decay_steps < 0) {
    fail(ExitCode::usage, "steps must not be negative: warmup_steps {}, steps {}, decay_steps {}",
         config.warmup_steps, config.total_steps, config.decay_steps);
  }
  if (config.kind == ScheduleKind::constant) return;
  if (config.warmup_steps > config.total_steps) {
    fail(ExitCode::usage, "warmup_steps {} is more than the {} steps of the run",
         config.warmup_steps, config.total_steps);
  }
  if (config.kind == ScheduleKind::wsd &&
      config.decay_steps > config.total_steps - config.warmup_steps) {
    fail(ExitCode::usage, "decay_steps {} and warmup_steps {} overlap in a run of {} steps",
         config.decay_steps, config.warmup_steps, config.total_steps);
  }
}

double learning_rate(const ScheduleConfig& config, std::int64_t step) {
  BELAY_CHECK(step >= 1);
  if (step <= config.warmup_steps) {
    return config.lr * static_cast<double>(step) / static_cast<double>(config.warmup_steps);
  }
  if (config.kind == ScheduleKind::constant) return config.lr;
  if (step >= config.total_steps) return config.min_lr;
  const double span = config.lr - config.min_lr;
  switch (config.kind) {
    case ScheduleKind::linear:
      return config.lr - span * progress(step, config.warmup_steps, config.total_steps);
    case ScheduleKind::cosine: {
      const double p = progress(step, config.warmup_steps, config.total_steps);
      return config.min_lr + 0.5 * span * (1.0 + std::cos(std::numbers::pi * p));
    }
    case ScheduleKind::wsd: {
      const std::int64_t begin = config.total_steps - config.decay_steps;
      if (step <= begin) return config.lr;
      return config.lr - span * progress(step, begin, config.total_steps);
    }
    case ScheduleKind::constant:
      break;
  }
  return config.lr;
}

}  // namespace belay
