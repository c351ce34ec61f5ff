#include "belay/precision/loss_scaler.h"

#include <fmt/format.h>

#include <algorithm>

#include "belay/base/error.h"
#include "belay/precision/state_text.h"

namespace belay {

LossScaler::LossScaler(const PrecisionConfig& config)
    : mode_(config.loss_scale),
      max_(config.scale_max),
      min_(config.scale_min),
      growth_(config.growth_factor),
      backoff_(config.backoff_factor),
      interval_(config.growth_interval) {
  if (mode_ != LossScaleMode::none) scale_ = config.scale_init;
}

bool LossScaler::good_step(bool may_grow) {
  stuck_ = 0;
  if (!dynamic()) return false;
  good_steps_ = std::min(good_steps_ + 1, interval_);
  if (good_steps_ < interval_ || !may_grow) return false;
  good_steps_ = 0;
  const double before = scale_;
  scale_ = std::min(scale_ * growth_, max_);
  return scale_ > before;
}

bool LossScaler::overflow() {
  const bool fallen = lower();
  if (!fallen) ++stuck_;
  return fallen;
}

bool LossScaler::lower() {
  if (!dynamic()) return false;
  good_steps_ = 0;
  const double before = scale_;
  scale_ = std::max(scale_ / backoff_, min_);
  return scale_ < before;
}

std::string LossScaler::state() const {
  return fmt::format("{} {} {}", scale_, good_steps_, stuck_);
}

void LossScaler::restore(std::string_view text) {
  StateReader reader("loss scaler", text);
  const double scale = reader.real();
  const std::int64_t good = reader.whole();
  const std::int64_t stuck = reader.whole();
  reader.finish();
  if (!is_power_of_two(scale) || good < 0 || stuck < 0) reader.refuse();
  // A new range or a new interval holds from here on.
  if (dynamic()) scale_ = std::clamp(scale, min_, max_);
  good_steps_ = std::min(good, interval_);
  stuck_ = stuck;
}

}  // namespace belay
