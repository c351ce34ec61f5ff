#pragma once
// [precision]: loss scaling, the guard in front of it, and forecasts of gradient norms.

#include <cstdint>
#include <span>

#include "belay/base/config.h"

namespace belay {

enum class LossScaleMode : std::uint8_t { automatic, none, dynamic, fixed };
enum class ScalePreset : std::uint8_t { standard, ascend };
enum class ForecastAction : std::uint8_t { off, warn, halve };

struct PrecisionConfig {
  LossScaleMode loss_scale = LossScaleMode::automatic;
  ScalePreset preset = ScalePreset::standard;
  double scale_init = 0;
  double scale_max = 65536.0 * 256;
  double scale_min = 1;
  double growth_factor = 2;
  double backoff_factor = 2;
  std::int64_t growth_interval = 2000;
  std::int64_t max_skips = 10;

  bool guard = true;
  double guard_limit = 0;
  std::int64_t guard_every = 100;
  std::int64_t guard_window = 100;
  double guard_quantile = 0.9;
  double guard_share = 0.8;
  std::int64_t guard_patience = 3;
  double guard_decay = 0.999;

  ForecastAction forecast = ForecastAction::halve;
  std::int64_t forecast_horizon = 200;
  double forecast_confidence = 0.95;
  std::int64_t forecast_history = 512;
  std::int64_t forecast_block = 4;
  bool record_norms = true;

  static constexpr std::string_view kSection = "precision";
  static std::span<const config::Field> fields();
};

// The same with what follows from the compute type and the preset filled in: the mode is no longer
// automatic (dynamic for f16, none otherwise), scale_init and guard_limit are not 0.
PrecisionConfig resolved(PrecisionConfig config, DType dtype);

// Error(usage) naming the key and the nearest valid values: scales and factors are powers of two
// (multiplying by them is exact), a scale that moves starts between scale_min and scale_max, and a
// forecast learns from 32 blocks at least.
void check_precision(const PrecisionConfig& config);

// Largest finite number of a floating-point type.
double largest_finite(DType dtype);

bool is_power_of_two(double value);

}  // namespace belay
