#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>

#include "belay/observe/plot.h"

namespace belay {
namespace {

constexpr int kDotsAcross = 2;  // of one braille character
constexpr int kDotsDown = 4;

// A grid of characters; each holds 2 x 4 dots or one marker.
class Canvas {
 public:
  Canvas(int width, int height)
      : width_(width),
        height_(height),
        dots_(static_cast<std::size_t>(width * height)),
        marked_(dots_.size()) {}

  // Dot coordinates, from the upper left.
  void dot(int x, int y) {
    // Bits of U+2800: the first three rows column by column, then the fourth row.
    constexpr std::uint8_t kBits[kDotsDown][kDotsAcross] = {
        {0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    dots_[cell(x, y)] =
        static_cast<std::uint8_t>(dots_[cell(x, y)] | kBits[y % kDotsDown][x % kDotsAcross]);
  }
  void mark(int x, int y) { marked_[cell(x, y)] = true; }
  [[nodiscard]] int dots_wide() const { return width_ * kDotsAcross; }
  [[nodiscard]] int dots_high() const { return height_ * kDotsDown; }

  [[nodiscard]] std::string row(int index) const {
    std::string text;
    for (int column = 0; column < width_; ++column) {
      const auto at = static_cast<std::size_t>(index * width_ + column);
      if (marked_[at]) {
        text += "●";
      } else if (dots_[at] == 0) {
        text += ' ';
      } else {
        // U+2800 + bits in UTF-8.
        text += '\xE2';
        text += static_cast<char>(0xA0 | (dots_[at] >> 6));
        text += static_cast<char>(0x80 | (dots_[at] & 0x3F));
      }
    }
    return text;
  }

 private:
  [[nodiscard]] std::size_t cell(int x, int y) const {
    return static_cast<std::size_t>(y / kDotsDown * width_ + x / kDotsAcross);
  }

  int width_;
  int height_;
  std::vector<std::uint8_t> dots_;
  std::vector<bool> marked_;
};

int scaled(double position, int size) {
  return std::clamp(static_cast<int>(std::lround(position * (size - 1))), 0, size - 1);
}

// Every gap-th dot of the canvas across, so that gaps of joined lines fall into step.
void draw_line(Canvas& canvas, int x0, int y0, int x1, int y1, int gap) {
  const int steps = std::max({std::abs(x1 - x0), std::abs(y1 - y0), 1});
  for (int step = 0; step <= steps; ++step) {
    const double share = static_cast<double>(step) / steps;
    const int x = static_cast<int>(std::lround(x0 + share * (x1 - x0)));
    if (x % gap == 0) canvas.dot(x, static_cast<int>(std::lround(y0 + share * (y1 - y0))));
  }
}

std::string_view sample_of(Style style) {
  switch (style) {
    case Style::val:
      return "●";
    case Style::edge:
    case Style::limit:
      return "⠄⠄";
    default:
      return "⠤⠤";
  }
}

std::string legend(const Plot& plot) {
  std::string text;
  for (const Series& series : plot.series) {
    if (series.label.empty() || series.style == Style::raw) continue;
    text += fmt::format("  {} {}", series.label, sample_of(series.style));
  }
  return text;
}

}  // namespace

std::string draw_text(const Plot& plot, int width, int height) {
  constexpr int kLabel = 8;
  const int columns = std::max(width - kLabel - 2, 10);
  const int rows = std::max(height - 3, 3);
  const Axis values = value_axis(plot, std::max(rows / 3, 2));
  const Axis steps = step_axis(plot, std::max(columns / 14, 2));
  Canvas canvas(columns, rows);
  const auto x_of = [&](const Point& p) { return scaled(steps.position(p.x), canvas.dots_wide()); };
  const auto y_of = [&](const Point& p) {
    return scaled(1 - values.position(p.y), canvas.dots_high());
  };
  const auto dots = static_cast<std::size_t>(canvas.dots_wide());
  const auto line_through = [&](std::span<const Point> points, int gap) {
    for (std::size_t index = 0; index < points.size(); ++index) {
      const Point& from = points[index == 0 ? 0 : index - 1];
      draw_line(canvas, x_of(from), y_of(from), x_of(points[index]), y_of(points[index]), gap);
    }
  };
  for (const auto* const edge : {&plot.band_low, &plot.band_high}) line_through(*edge, 2);
  for (const Series& series : plot.series) {
    switch (series.style) {
      case Style::raw:
        break;
      case Style::val:
        for (const Point& point : series.points) canvas.mark(x_of(point), y_of(point));
        break;
      case Style::train:
      case Style::forecast:
        line_through(thinned(series.points, dots), 1);
        break;
      case Style::edge:
        line_through(thinned(series.points, dots), 2);
        break;
      case Style::limit:
        line_through(series.points, 4);
        break;
    }
  }

  std::vector<std::string> labels(static_cast<std::size_t>(rows));
  for (const double tick : values.ticks()) {
    labels[static_cast<std::size_t>(scaled(1 - values.position(tick), rows))] = values.label(tick);
  }
  std::string text = fmt::format("{:>{}}{}\n", plot.short_label, kLabel, legend(plot));
  for (int row = 0; row < rows; ++row) {
    const std::string& label = labels[static_cast<std::size_t>(row)];
    text += fmt::format("{:>{}} {}{}\n", label, kLabel, label.empty() ? "│" : "┤", canvas.row(row));
  }
  std::string numbers(static_cast<std::size_t>(columns + kLabel + 2), ' ');
  std::string line;
  std::vector<bool> ticked(static_cast<std::size_t>(columns));
  for (const double tick : steps.ticks()) {
    const int column = scaled(steps.position(tick), columns);
    ticked[static_cast<std::size_t>(column)] = true;
    const std::string label = steps.label(tick);
    const auto size = static_cast<int>(label.size());
    const int begin = std::min(kLabel + 2 + column - size / 2, kLabel + 2 + columns - size);
    numbers.replace(static_cast<std::size_t>(begin), label.size(), label);
  }
  for (const bool tick : ticked) line += tick ? "┬" : "─";
  text += fmt::format("{:>{}} └{}\n{}\n", "", kLabel, line,
                      numbers.substr(0, numbers.find_last_not_of(' ') + 1) + "  step");
  return text;
}

}  // namespace belay
