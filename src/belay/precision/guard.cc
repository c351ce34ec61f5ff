#include "belay/precision/guard.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "belay/base/check.h"
#include "belay/precision/state_text.h"

namespace belay {
namespace {

constexpr double kNothing = -1e30;
constexpr int kMostBlind = 4;  // a fall by 2^32 is enough for any scale

}  // namespace

std::int64_t Guard::history_needed(const PrecisionConfig& config) {
  return config.forecast == ForecastAction::off
             ? config.guard_window
             : std::max(config.guard_window, config.forecast_history);
}

Guard::Guard(const PrecisionConfig& config, int layers)
    : config_(config),
      log2_limit_(std::log2(config.guard_limit)),
      forecaster_(config),
      values_(static_cast<std::size_t>(history_needed(config))),
      weighted_(static_cast<std::size_t>(config.guard_window)) {
  BELAY_CHECK(layers > 0 && config.guard_limit > 0);
}

const GuardLook* Guard::after_step(const NormHistory& history, double scale) {
  if (history.seen() % config_.guard_every != 0) return nullptr;
  look_ = {};
  look_back(history, scale);
  if (config_.forecast != ForecastAction::off) look_ahead(history, scale);
  return &look_;
}

double Guard::quantile(const NormHistory& history, int layer) {
  const std::int64_t count = std::min(config_.guard_window, history.size());
  const std::span<double> values(values_.data(), static_cast<std::size_t>(count));
  history.copy(layer, values);
  double total = 0;
  double weight = 1;
  for (std::size_t age = 0; age < values.size(); ++age) {
    weighted_[age] = {values[values.size() - 1 - age], weight};
    total += weight;
    weight *= config_.guard_decay;
  }
  std::sort(weighted_.begin(), weighted_.begin() + count);
  double below = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    below += weighted_[static_cast<std::size_t>(i)].second;
    if (below >= config_.guard_quantile * total * (1 - 1e-12)) {
      return weighted_[static_cast<std::size_t>(i)].first;
    }
  }
  return kNothing;
}

int Guard::halvings_for(double log2_excess) const {
  if (log2_excess <= 0) return 0;
  return static_cast<int>(std::ceil(log2_excess / std::log2(config_.backoff_factor) - 1e-12));
}

void Guard::look_back(const NormHistory& history, double scale) {
  recent_log2_ = kNothing;
  for (int layer = 0; layer < history.layers(); ++layer) {
    const double value = quantile(history, layer);
    if (value <= recent_log2_) continue;
    recent_log2_ = value;
    look_.layer = layer;
  }
  const double log2_share = recent_log2_ + std::log2(scale) - log2_limit_;
  look_.share = std::exp2(log2_share);
  const double excess = log2_share - std::log2(config_.guard_share);
  streak_ = excess > 0 ? streak_ + 1 : 0;
  if (streak_ < config_.guard_patience) return;
  look_.halvings = halvings_for(excess);
  streak_ = 0;
}

void Guard::look_ahead(const NormHistory& history, double scale) {
  coming_log2_ = kNothing;
  const double room = log2_limit_ - std::log2(scale);
  const std::int64_t count = std::min(forecaster_.history(), history.size());
  const std::span<double> values(values_.data(), static_cast<std::size_t>(count));
  double soon = kNothing;  // largest median before the next look
  for (int layer = 0; layer < history.layers(); ++layer) {
    history.copy(layer, values);
    if (!forecaster_.run(values)) continue;
    for (const ForecastPoint& point : forecaster_.points()) {
      coming_log2_ = std::max(coming_log2_, point.median);
      if (point.ahead <= config_.guard_every) soon = std::max(soon, point.median);
      if (point.median > room && (look_.leaves_in == 0 || point.ahead < look_.leaves_in)) {
        look_.leaving_layer = layer;
        look_.leaves_in = point.ahead;
      }
      if (point.high > room && (look_.endangered_in == 0 || point.ahead < look_.endangered_in)) {
        look_.endangered_layer = layer;
        look_.endangered_in = point.ahead;
      }
    }
  }
  if (config_.forecast != ForecastAction::halve || look_.leaves_in == 0) return;
  // What happens before the next look is answered in full; for what is further off there is time to
  // look again.
  const int wanted = std::max(1, halvings_for(soon - room));
  if (wanted <= look_.halvings) return;
  look_.halvings = wanted;
  look_.forecast = true;
}

int Guard::after_overflow(const NormHistory& history, std::span<const double> norms, double scale,
                          bool loss_finite) {
  if (!loss_finite) return 1;
  bool blind = true;
  double growth = 0;  // log2, the largest of a layer against its own recent norms
  double recent = kNothing;
  double now = kNothing;
  for (int layer = 0; layer < history.layers(); ++layer) {
    const double usual = quantile(history, layer);
    recent = std::max(recent, usual);
    const double norm = norms[static_cast<std::size_t>(layer)];
    if (!std::isfinite(norm)) continue;
    blind = false;
    const double value = log2_norm(norm_code(norm));
    now = std::max(now, value);
    // A layer without any gradient so far says nothing of growth.
    if (usual > log2_norm(0)) growth = std::max(growth, value - usual);
  }
  if (blind) {
    const int halvings = 2 << blind_;
    blind_ = std::min(blind_ + 1, kMostBlind);
    return halvings;
  }
  blind_ = 0;
  const double excess = std::max(now, recent + growth) + std::log2(scale) - log2_limit_ -
                        std::log2(config_.guard_share);
  return std::max(1, halvings_for(excess));
}

bool Guard::has_room(double scale) const {
  const double log2_scale = std::log2(scale);
  return recent_log2_ + log2_scale <= log2_limit_ + std::log2(config_.guard_share) &&
         coming_log2_ + log2_scale <= log2_limit_;
}

std::string Guard::state() const {
  return fmt::format("{} {} {} {}", streak_, recent_log2_, coming_log2_, blind_);
}

void Guard::restore(std::string_view text) {
  StateReader reader("guard", text);
  const std::int64_t streak = reader.whole();
  const double recent = reader.real();
  const double coming = reader.real();
  const std::int64_t blind = reader.whole();
  reader.finish();
  if (streak < 0 || blind < 0 || blind > kMostBlind || !std::isfinite(recent) ||
      !std::isfinite(coming))
    reader.refuse();
  streak_ = streak;
  recent_log2_ = recent;
  coming_log2_ = coming;
  blind_ = static_cast<int>(blind);
}

}  // namespace belay
