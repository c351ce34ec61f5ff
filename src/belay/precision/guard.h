#pragma once
// Guard: lowers the loss scale before a gradient overflows. Every so many good steps it looks at a
// quantile of each layer's recent norms, times the scale, against the head room. A share that is
// too large several looks in a row lowers the scale, and so does a forecast that leaves the head
// room. It also keeps the scale from growing into what it would lower again.
//
// When a step has overflowed all the same, it says how far to fall. Overflows spread from the
// output towards the input, so a layer that stayed finite tells by how much gradients have grown,
// against its recent norms. When none has, the scale falls by 4, then 16, 256 and so on: a jump by
// 2^n costs about log2(n) steps instead of n.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "belay/precision/norm_forecast.h"
#include "belay/precision/norm_history.h"

namespace belay {

// What one look saw and advises.
struct GuardLook {
  int layer = -1;         // with the largest share
  double share = 0;       // its quantile x scale / head room
  int halvings = 0;       // how often to lower the scale now
  bool forecast = false;  // by the forecast alone
  // The layer whose forecast leaves the head room first, and in how many steps; 0: none does.
  int leaving_layer = -1;
  std::int64_t leaves_in = 0;
  // The same for the upper edge of the band.
  int endangered_layer = -1;
  std::int64_t endangered_in = 0;
};

class Guard {
 public:
  // `config` resolved.
  Guard(const PrecisionConfig& config, int layers);

  // Steps of history that it needs.
  static std::int64_t history_needed(const PrecisionConfig& config);

  // After a good step, its norms being the newest in the history; null between the looks. The view
  // stays valid until the next call. Allocates nothing.
  const GuardLook* after_step(const NormHistory& history, double scale);

  // After a step whose gradients overflowed, with the norms that it left, some or all of them not
  // finite, and the history before it: how often to lower the scale, at least once. When already
  // the loss was not finite, no scale helps and falls stay short.
  int after_overflow(const NormHistory& history, std::span<const double> norms, double scale,
                     bool loss_finite);
  // After a good step: the next fall begins anew.
  void recovered() { blind_ = 0; }

  // Whether there is room for a scale, going by the last look and its forecasts.
  [[nodiscard]] bool has_room(double scale) const;

  [[nodiscard]] std::string state() const;
  void restore(std::string_view text);

 private:
  void look_back(const NormHistory& history, double scale);
  void look_ahead(const NormHistory& history, double scale);
  [[nodiscard]] double quantile(const NormHistory& history, int layer);
  [[nodiscard]] int halvings_for(double log2_excess) const;

  const PrecisionConfig config_;
  double log2_limit_;
  NormForecaster forecaster_;
  GuardLook look_;
  std::int64_t streak_ = 0;     // looks in a row above the share
  int blind_ = 0;               // steps in a row without any finite norm
  double recent_log2_ = -1e30;  // largest quantile of the last look
  double coming_log2_ = -1e30;  // largest forecast median of the last look
  std::vector<double> values_;
  std::vector<std::pair<double, double>> weighted_;  // value, weight
};

}  // namespace belay
