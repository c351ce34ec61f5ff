#include "belay/observe/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "belay/base/check.h"

namespace belay {
namespace {

// The largest of 1, 2, 5 times a power of ten that is not above `value`, and its decimal digits.
double round_step(double value, int& digits) {
  const double exponent = std::floor(std::log10(value));
  const double power = std::pow(10.0, exponent);
  double step = power;
  for (const double factor : {2.0, 5.0, 10.0}) {
    if (factor * power <= value * (1 + 1e-9)) step = factor * power;
  }
  digits = std::max(0, -static_cast<int>(std::floor(std::log10(step) + 1e-9)));
  return step;
}

}  // namespace

Axis::Axis(double low, double high, Scale scale, int ticks)
    : low_(low), high_(high), scale_(scale) {
  BELAY_CHECK(low < high && ticks > 0 && (scale == Scale::linear || low > 0));
  // Over a wide range round steps would crowd at the top of a log axis.
  if (scale == Scale::log && high / low > 20) {
    for (double power = std::pow(10.0, std::floor(std::log10(low))); power <= high; power *= 10) {
      for (const double factor : {1.0, 2.0, 5.0}) {
        if (factor > 1 && high / low > 2000) break;
        const double tick = factor * power;
        if (tick >= low && tick <= high) ticks_.push_back(tick);
      }
    }
    digits_ = std::max(0, -static_cast<int>(std::floor(std::log10(ticks_.front()) + 1e-9)));
    constexpr int kMostDigits = 4;
    if (digits_ > kMostDigits || ticks_.back() >= 1e6) digits_ = -1;
    return;
  }
  double step = round_step((high - low) / ticks, digits_);
  // round_step rounds down; widen until the ticks are no more than asked for.
  for (double factor = 2; (high - low) / step > ticks + 0.5; factor = factor == 2 ? 2.5 : 2) {
    step = round_step(step * factor, digits_);
  }
  for (double index = std::ceil(low / step - 1e-9); index * step <= high * (1 + 1e-12); ++index) {
    ticks_.push_back(index * step + 0.0);  // no -0
  }
}

double Axis::position(double value) const {
  if (scale_ == Scale::linear) return (value - low_) / (high_ - low_);
  return std::log(value / low_) / std::log(high_ / low_);
}

std::string Axis::label(double tick) const {
  if (digits_ < 0) return fmt::format("{:.0e}", tick);
  return fmt::format("{:.{}f}", tick, digits_);
}

Axis value_axis(const Plot& plot, int ticks) {
  double low = std::numeric_limits<double>::infinity();
  double high = -low;
  const auto include = [&](const std::vector<Point>& points) {
    for (const Point& point : points) {
      low = std::min(low, point.y);
      high = std::max(high, point.y);
    }
  };
  for (const Series& series : plot.series) include(series.points);
  include(plot.band_low);
  include(plot.band_high);
  if (low > high) return {0, 1, Scale::linear, ticks};
  if (plot.scale == Scale::log && low > 0) return {low / 1.03, high * 1.03, plot.scale, ticks};
  const double room = std::max((high - low) * 0.04, 1e-6 * std::max(1.0, std::abs(high)));
  return {low - room, high + room, Scale::linear, ticks};
}

Axis step_axis(const Plot& plot, int ticks) {
  double high = plot.first_step + 1;
  const auto include = [&](const std::vector<Point>& points) {
    for (const Point& point : points) high = std::max(high, point.x);
  };
  for (const Series& series : plot.series) include(series.points);
  include(plot.band_high);
  return {plot.first_step, high, Scale::linear, ticks};
}

std::vector<Point> thinned(std::span<const Point> points, std::size_t buckets) {
  if (points.size() <= buckets) return {points.begin(), points.end()};
  std::vector<Point> result;
  result.reserve(buckets);
  for (std::size_t bucket = 0; bucket < buckets; ++bucket) {
    const std::size_t begin = bucket * points.size() / buckets;
    const std::size_t end = (bucket + 1) * points.size() / buckets;
    Point mean;
    for (const Point& point : points.subspan(begin, end - begin)) {
      mean.x += point.x;
      mean.y += point.y;
    }
    const auto count = static_cast<double>(end - begin);
    result.push_back({mean.x / count, mean.y / count});
  }
  return result;
}

std::vector<Point> smoothed(std::span<const Point> points, double decay) {
  std::vector<Point> result;
  result.reserve(points.size());
  double sum = 0;
  double weight = 0;
  for (const Point& point : points) {
    sum = decay * sum + point.y;
    weight = decay * weight + 1;
    result.push_back({point.x, sum / weight});
  }
  return result;
}

}  // namespace belay
