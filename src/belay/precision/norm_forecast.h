#pragma once
// Forecasts of one layer's gradient norm. The model is an ARIMA of the logarithms, since norms vary
// by factors; `block` steps are averaged into one point of it, which keeps fitting cheap, and the
// spread of single steps within a block is added to the band.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "belay/precision/arima.h"
#include "belay/precision/precision_config.h"

namespace belay {

// `ahead` steps after the last one of the history; logarithms to base 2.
struct ForecastPoint {
  std::int64_t ahead = 0;
  double median = 0;
  double low = 0;  // a norm lies between low and high with the configured confidence
  double high = 0;
};

class NormForecaster {
 public:
  // Uses the forecast_ keys. Nothing is allocated after construction.
  explicit NormForecaster(const PrecisionConfig& config);

  // Steps of history that a forecast looks at, at most.
  [[nodiscard]] std::int64_t history() const { return history_; }

  // `log2_norms`, oldest first, at most history() of them; steps that are not finite are passed
  // over. False: too few or without any variation, and points() is empty.
  bool run(std::span<const double> log2_norms);

  // Every block up to the horizon.
  [[nodiscard]] std::span<const ForecastPoint> points() const { return {points_.data(), made_}; }
  [[nodiscard]] const ArimaModel& model() const { return model_; }

 private:
  std::int64_t history_;
  std::int64_t block_;
  std::int64_t horizon_;
  double deviations_;  // half of the band, in standard deviations
  ArimaFitter fitter_;
  ArimaModel model_;
  std::vector<double> finite_;
  std::vector<double> means_;
  std::vector<ArimaForecast> ahead_;
  std::vector<ForecastPoint> points_;
  std::size_t made_ = 0;
};

}  // namespace belay
