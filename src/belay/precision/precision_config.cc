#include "belay/precision/precision_config.h"

#include <cmath>
#include <limits>

#include "belay/base/error.h"

namespace belay {
namespace {

// In the order of the enumerators.
constexpr std::string_view kModes[] = {"auto", "none", "dynamic", "static"};
constexpr std::string_view kPresets[] = {"standard", "ascend"};
constexpr std::string_view kActions[] = {"off", "warn", "halve"};

constexpr double kLargestScale = 0x1p127;

double preset_scale(ScalePreset preset) {
  return preset == ScalePreset::ascend ? 1024 : 65536;
}

void must_be_power_of_two(std::string_view key, double value) {
  if (is_power_of_two(value)) return;
  const double below = std::exp2(std::floor(std::log2(value)));
  fail(ExitCode::usage,
       "precision.{} is {}, which is no power of two; only those scale without rounding: take {} "
       "or {}",
       key, value, below, 2 * below);
}

}  // namespace

std::span<const config::Field> PrecisionConfig::fields() {
  using C = PrecisionConfig;
  using config::at_least;
  using config::between;
  using config::field;
  using config::one_of;
  static const config::Field kFields[] = {
      field<&C::loss_scale>("loss_scale",
                            "the loss is multiplied by this before backward and gradients are "
                            "divided by it; auto: dynamic for f16, none for f32 and bf16",
                            one_of(kModes)),
      field<&C::preset>("preset", "first scale: standard 65536, ascend 1024", one_of(kPresets)),
      field<&C::scale_init>("scale_init",
                            "first scale (static: the only one), a power of two; 0: the preset's",
                            between(0, kLargestScale)),
      field<&C::scale_max>("scale_max", "growth ends here; a power of two",
                           between(0x1p-64, kLargestScale)),
      field<&C::scale_min>("scale_min", "halving ends here; a power of two",
                           between(0x1p-64, kLargestScale)),
      field<&C::growth_factor>("growth_factor", "of one growth; a power of two", between(2, 65536)),
      field<&C::backoff_factor>("backoff_factor", "of one halving; a power of two",
                                between(2, 65536)),
      field<&C::growth_interval>("growth_interval", "good steps in a row before the scale grows",
                                 at_least(1)),
      field<&C::max_skips>("max_skips",
                           "skipped steps in a row, at a scale that cannot fall, that end the run",
                           at_least(1)),
      field<&C::guard>("guard", "with a dynamic scale: halve before anything overflows"),
      field<&C::guard_limit>("guard_limit",
                             "head room: what a scaled gradient norm must stay below; 0: the "
                             "largest number of train.dtype",
                             at_least(0)),
      field<&C::guard_every>("guard_every", "good steps between the guard's looks", at_least(1)),
      field<&C::guard_window>("guard_window", "good steps that one look takes in",
                              between(1, 65536)),
      field<&C::guard_quantile>("guard_quantile", "of the norms in the window", between(0, 1)),
      field<&C::guard_share>("guard_share", "share of the head room that is too much",
                             between(0.01, 1)),
      field<&C::guard_patience>("guard_patience", "looks in a row above it before a halving",
                                at_least(1)),
      field<&C::guard_decay>("guard_decay", "weight of a norm against the one a step later",
                             between(0.01, 1)),
      field<&C::forecast>("forecast",
                          "when norms are forecast to leave the head room: nothing, a warning, or "
                          "also an early halving",
                          one_of(kActions)),
      field<&C::forecast_horizon>("forecast_horizon", "steps to look ahead", between(1, 65536)),
      field<&C::forecast_confidence>("forecast_confidence", "of the band around a forecast",
                                     between(0.01, 0.9999)),
      field<&C::forecast_history>("forecast_history", "good steps that a forecast learns from",
                                  between(32, 65536)),
      field<&C::forecast_block>("forecast_block", "steps averaged into one point of the model",
                                between(1, 1024)),
      field<&C::record_norms>("record_norms",
                              "keep every layer's gradient norm in gradient-norms.bin"),
  };
  return kFields;
}

bool is_power_of_two(double value) {
  int exponent = 0;
  return value > 0 && std::isfinite(value) && std::frexp(value, &exponent) == 0.5;
}

double largest_finite(DType dtype) {
  switch (dtype) {
    case DType::f16:
      return 65504;
    case DType::bf16:
      return 0x1.FEp127;
    case DType::f64:
      return std::numeric_limits<double>::max();
    default:
      return static_cast<double>(std::numeric_limits<float>::max());
  }
}

PrecisionConfig resolved(PrecisionConfig config, DType dtype) {
  if (config.loss_scale == LossScaleMode::automatic) {
    config.loss_scale = dtype == DType::f16 ? LossScaleMode::dynamic : LossScaleMode::none;
  }
  if (config.scale_init == 0) config.scale_init = preset_scale(config.preset);
  if (config.guard_limit == 0) config.guard_limit = largest_finite(dtype);
  return config;
}

void check_precision(const PrecisionConfig& config) {
  const double init = config.scale_init == 0 ? preset_scale(config.preset) : config.scale_init;
  must_be_power_of_two("scale_init", init);
  must_be_power_of_two("scale_max", config.scale_max);
  must_be_power_of_two("scale_min", config.scale_min);
  must_be_power_of_two("growth_factor", config.growth_factor);
  must_be_power_of_two("backoff_factor", config.backoff_factor);
  const bool moves =
      config.loss_scale == LossScaleMode::dynamic || config.loss_scale == LossScaleMode::automatic;
  if (moves && (init < config.scale_min || init > config.scale_max)) {
    fail(ExitCode::usage, "precision.scale_init {} is not between scale_min {} and scale_max {}",
         init, config.scale_min, config.scale_max);
  }
  constexpr std::int64_t kFewestPoints = 32;
  if (config.forecast != ForecastAction::off &&
      config.forecast_history / config.forecast_block < kFewestPoints) {
    fail(ExitCode::usage,
         "precision.forecast_history {} in blocks of {} leaves {} points; a forecast needs at "
         "least {}: raise it to {} or lower forecast_block",
         config.forecast_history, config.forecast_block,
         config.forecast_history / config.forecast_block, kFewestPoints,
         kFewestPoints * config.forecast_block);
  }
}

}  // namespace belay
