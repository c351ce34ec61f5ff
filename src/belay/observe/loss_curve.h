#pragma once
// Loss curves: read from a run's metrics.jsonl, drawn as text or as an SVG picture.

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace belay {

struct Point {
  double x = 0;
  double y = 0;
};

struct LossHistory {
  std::vector<Point> train;  // step, loss
  std::vector<Point> val;
};

// Losses that are not finite are left out; a torn last line is ignored. Error(data) names file and
// line of anything else that is not a record.
LossHistory read_loss_history(const std::string& path);

enum class Scale { linear, log };

// Maps values to [0, 1] and knows where the axis has its ticks.
class Axis {
 public:
  // At most about `ticks` ticks at round values. low < high; both > 0 on a log scale.
  Axis(double low, double high, Scale scale, int ticks);

  [[nodiscard]] double position(double value) const;
  [[nodiscard]] const std::vector<double>& ticks() const { return ticks_; }
  // A tick's value with as many digits as the ticks need.
  [[nodiscard]] std::string label(double tick) const;

 private:
  double low_;
  double high_;
  Scale scale_;
  std::vector<double> ticks_;
  int digits_ = 0;
};

// The axis around the points' y values, with a little room; empty input gives [0, 1].
Axis value_axis(const LossHistory& history, Scale scale, int ticks);
Axis step_axis(const LossHistory& history, int ticks);

// Means over `buckets` stretches of equal length, so that a long run stays a small picture.
std::vector<Point> thinned(std::span<const Point> points, std::size_t buckets);
// Exponential moving average without start-up bias.
std::vector<Point> smoothed(std::span<const Point> points, double decay);

// A plot of width x height characters (axes included) in braille dots; validation as "●".
std::string draw_text(const LossHistory& history, int width, int height, Scale scale);

// A standalone picture that reads well on light and dark pages.
std::string draw_svg(const LossHistory& history, std::string_view title, Scale scale);

}  // namespace belay
