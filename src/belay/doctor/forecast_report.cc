#include "belay/doctor/forecast_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "belay/base/error.h"
#include "belay/precision/norm_forecast.h"

namespace belay {
namespace {

constexpr std::size_t kRecent = 20;
// Steps before the forecast that the plot shows, per step ahead.
constexpr std::int64_t kShownBefore = 4;

// Entries of the record up to and including the step.
std::size_t entries_until(const GradientRecord& record, std::int64_t step) {
  const auto end = std::upper_bound(record.steps.begin(), record.steps.end(), step);
  return static_cast<std::size_t>(end - record.steps.begin());
}

std::vector<double> log2_norms(const GradientRecord& record, std::size_t layer, std::size_t begin,
                               std::size_t end) {
  std::vector<double> values;
  for (std::size_t index = begin; index < end; ++index) {
    values.push_back(log2_norm(record.code(index, layer)));
  }
  return values;
}

double median_of_newest(std::span<const double> log2_norms) {
  std::vector<double> values(
      log2_norms.end() - static_cast<std::ptrdiff_t>(std::min(kRecent, log2_norms.size())),
      log2_norms.end());
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Norm at a step that has been recorded, if it has.
std::optional<double> happened(const GradientRecord& record, std::size_t layer, std::int64_t step) {
  const std::size_t entries = entries_until(record, step);
  if (entries == 0 || record.steps[entries - 1] != step) return std::nullopt;
  return log2_norm(record.code(entries - 1, layer));
}

LayerOutlook outlook_of(const GradientRecord& record, std::size_t layer, std::size_t entries,
                        NormForecaster& forecaster, double log2_room) {
  LayerOutlook outlook;
  outlook.name = record.layers[layer];
  const auto history = static_cast<std::size_t>(forecaster.history());
  const std::vector<double> values =
      log2_norms(record, layer, entries - std::min(entries, history), entries);
  const double now = median_of_newest(values);
  outlook.now = std::exp2(now);
  outlook.share_now = std::exp2(now - log2_room);
  if (!forecaster.run(values)) return outlook;
  outlook.fitted = true;
  outlook.order = forecaster.model().order;
  const ForecastPoint& last = forecaster.points().back();
  outlook.median = std::exp2(last.median);
  outlook.low = std::exp2(last.low);
  outlook.high = std::exp2(last.high);
  outlook.share_median = std::exp2(last.median - log2_room);
  outlook.share_high = std::exp2(last.high - log2_room);
  for (const ForecastPoint& point : forecaster.points()) {
    if (outlook.leaves_in == 0 && point.median > log2_room) outlook.leaves_in = point.ahead;
    if (outlook.endangered_in == 0 && point.high > log2_room) outlook.endangered_in = point.ahead;
    const auto norm = happened(record, layer, record.steps[entries - 1] + point.ahead);
    if (!norm) continue;
    ++outlook.compared;
    if (*norm >= point.low && *norm <= point.high) ++outlook.inside;
  }
  return outlook;
}

// The layer asked for, or the one whose upper edge is nearest to the head room.
std::size_t choose_layer(const ForecastReport& report, const std::string& name) {
  const auto& layers = report.layers;
  if (name.empty()) {
    const auto nearest = std::max_element(
        layers.begin(), layers.end(), [](const LayerOutlook& a, const LayerOutlook& b) {
          return std::max(a.share_now, a.share_high) < std::max(b.share_now, b.share_high);
        });
    return static_cast<std::size_t>(nearest - layers.begin());
  }
  std::vector<std::string> names;
  for (std::size_t index = 0; index < layers.size(); ++index) {
    if (layers[index].name == name) return index;
    names.push_back(layers[index].name);
  }
  fail(ExitCode::usage, "there is no layer \"{}\"; the run has {}", name, fmt::join(names, ", "));
}

void draw(const GradientRecord& record, std::size_t entries, NormForecaster& forecaster,
          ForecastReport& report) {
  const std::size_t layer = report.drawn;
  Plot& plot = report.plot;
  plot.title = fmt::format("Gradient norm of {}", record.layers[layer]);
  plot.short_label = "norm";
  plot.y_label = "gradient norm";
  plot.scale = Scale::log;
  const std::int64_t first = std::max<std::int64_t>(
      0, report.step - kShownBefore * std::max<std::int64_t>(report.horizon, 1));
  plot.first_step = static_cast<double>(first);
  Series past{Style::train, "recorded", {}};
  Series limit{Style::limit, "head room", {}};
  double highest = 0;
  for (std::size_t index = entries_until(record, first); index < record.steps.size(); ++index) {
    const auto step = static_cast<double>(record.steps[index]);
    if (record.steps[index] > report.step + report.horizon) break;
    const double norm = std::exp2(log2_norm(record.code(index, layer)));
    if (std::isfinite(norm)) past.points.push_back({step, norm});
    highest = std::max(highest, std::isfinite(norm) ? norm : 0.0);
    limit.points.push_back({step, report.limit / std::exp2(record.log2_scale[index])});
  }
  const std::vector<double> values = log2_norms(
      record, layer, entries - std::min(entries, static_cast<std::size_t>(forecaster.history())),
      entries);
  Series ahead{Style::forecast, "forecast", {}};
  Series low{Style::edge, "", {}};
  Series high{Style::edge, fmt::format("{:.0f}% band", 100 * report.confidence), {}};
  forecaster.run(values);
  for (const ForecastPoint& point : forecaster.points()) {
    const auto step = static_cast<double>(report.step + point.ahead);
    ahead.points.push_back({step, std::exp2(point.median)});
    low.points.push_back({step, std::exp2(point.low)});
    high.points.push_back({step, std::exp2(point.high)});
    highest = std::max(highest, std::exp2(point.high));
  }
  if (!ahead.points.empty() && entries == record.steps.size()) {
    limit.points.push_back({ahead.points.back().x, report.limit / report.scale});
  }
  plot.band_low = low.points;
  plot.band_high = high.points;
  plot.series = {std::move(past), std::move(low), std::move(high), std::move(ahead)};
  // A head room far above would press the norms onto the axis.
  constexpr double kFar = 1e4;
  const bool near = std::all_of(limit.points.begin(), limit.points.end(),
                                [&](const Point& point) { return point.y < kFar * highest; });
  if (near && !limit.points.empty()) plot.series.push_back(std::move(limit));
}

}  // namespace

ForecastReport forecast_report(const GradientRecord& record, const ForecastOptions& options) {
  if (record.steps.empty()) {
    fail(ExitCode::data, "the record of gradient norms has no step yet");
  }
  const std::int64_t step = options.at > 0 ? options.at : record.steps.back();
  const std::size_t entries = entries_until(record, step);
  if (entries == 0 || record.steps[entries - 1] != step) {
    fail(ExitCode::usage, "step {} is not recorded; the record has steps {} to {}", step,
         record.steps.front(), record.steps.back());
  }
  check_precision(options.settings);
  ForecastReport report;
  report.step = step;
  report.horizon = options.settings.forecast_horizon;
  report.confidence = options.settings.forecast_confidence;
  report.scale = std::exp2(record.log2_scale[entries - 1]);
  report.limit = options.limit > 0 ? options.limit : record.limit;
  for (std::size_t index = 0; index < entries; ++index) {
    const auto row =
        record.codes.begin() + static_cast<std::ptrdiff_t>(index * record.layers.size());
    const auto end = row + static_cast<std::ptrdiff_t>(record.layers.size());
    report.overflows += std::find(row, end, kNotFinite) != end ? 1 : 0;
  }
  NormForecaster forecaster(options.settings);
  const double log2_room = std::log2(report.limit) - std::log2(report.scale);
  for (std::size_t layer = 0; layer < record.layers.size(); ++layer) {
    report.layers.push_back(outlook_of(record, layer, entries, forecaster, log2_room));
  }
  report.drawn = choose_layer(report, options.layer);
  draw(record, entries, forecaster, report);
  return report;
}

}  // namespace belay
