#include "belay/precision/norm_forecast.h"

#include <algorithm>
#include <cmath>

#include "belay/base/check.h"

namespace belay {
namespace {

std::size_t blocks(std::int64_t steps, std::int64_t block) {
  return static_cast<std::size_t>((steps + block - 1) / block);
}

}  // namespace

NormForecaster::NormForecaster(const PrecisionConfig& config)
    : history_(config.forecast_history),
      block_(config.forecast_block),
      horizon_(config.forecast_horizon),
      deviations_(normal_quantile(0.5 + config.forecast_confidence / 2)),
      fitter_(blocks(config.forecast_history, config.forecast_block)),
      finite_(static_cast<std::size_t>(config.forecast_history)),
      means_(blocks(config.forecast_history, config.forecast_block)),
      ahead_(blocks(config.forecast_horizon, config.forecast_block)),
      points_(ahead_.size()) {}

bool NormForecaster::run(std::span<const double> log2_norms) {
  BELAY_CHECK(log2_norms.size() <= finite_.size());
  made_ = 0;
  std::size_t count = 0;
  for (const double value : log2_norms) {
    if (std::isfinite(value)) finite_[count++] = value;
  }
  const auto block = static_cast<std::size_t>(block_);
  const std::size_t means = count / block;
  // The newest steps fill whole blocks; a few of the oldest may be left over.
  const double* value = finite_.data() + (count - means * block);
  double within = 0;
  for (std::size_t index = 0; index < means; ++index, value += block) {
    double sum = 0;
    for (std::size_t i = 0; i < block; ++i) sum += value[i];
    const double mean = sum / static_cast<double>(block);
    means_[index] = mean;
    for (std::size_t i = 0; i < block; ++i) within += (value[i] - mean) * (value[i] - mean);
  }
  const std::span<const double> series(means_.data(), means);
  const std::optional<ArimaModel> model = fitter_.choose(series);
  if (!model) return false;
  model_ = *model;
  fitter_.forecast(series, model_, ahead_);
  within /= static_cast<double>(means * block);
  for (std::size_t index = 0; index < ahead_.size(); ++index) {
    const double half = deviations_ * std::sqrt(ahead_[index].variance + within);
    const double median = ahead_[index].mean;
    const std::int64_t steps = std::min(static_cast<std::int64_t>(index + 1) * block_, horizon_);
    points_[index] = {steps, median, median - half, median + half};
  }
  made_ = ahead_.size();
  return true;
}

}  // namespace belay
