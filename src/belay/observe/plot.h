#pragma once
// Plots of values against steps, drawn as text for a terminal or as an SVG picture.

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace belay {

struct Point {
  double x = 0;
  double y = 0;
};

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
  int digits_ = 0;  // after the point; -1: powers of ten
};

// Means over `buckets` stretches of equal length, so that a long run stays a small picture.
std::vector<Point> thinned(std::span<const Point> points, std::size_t buckets);
// Exponential moving average without start-up bias.
std::vector<Point> smoothed(std::span<const Point> points, double decay);

// How a series looks, by its part in the picture; also its class in the SVG.
enum class Style {
  raw,       // faint line; not drawn as text, not in the legend
  train,     // solid line
  val,       // marked points on a dashed line
  forecast,  // solid line in the colour of val
  edge,      // dotted line: the edge of a band
  limit,     // dashed line: not to be crossed
};

struct Series {
  Style style = Style::train;
  std::string label;  // for the legend; empty: not in it
  std::vector<Point> points;
};

struct Plot {
  std::string title;
  std::string short_label;  // of the values, a word
  std::string y_label;
  Scale scale = Scale::linear;
  std::vector<Series> series;  // drawn in this order
  // The area between two edges with equal x; empty: none.
  std::vector<Point> band_low;
  std::vector<Point> band_high;
  double first_step = 0;  // left end of the axis
};

// The axis around all y values, with a little room; without any it is [0, 1].
Axis value_axis(const Plot& plot, int ticks);
Axis step_axis(const Plot& plot, int ticks);

// A plot of width x height characters (axes included) in braille dots; val points as "●".
std::string draw_text(const Plot& plot, int width, int height);

// A standalone picture that reads well on light and dark pages.
std::string draw_svg(const Plot& plot);

}  // namespace belay
