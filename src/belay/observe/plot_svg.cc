#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string>

#include "belay/observe/plot.h"

namespace belay {
namespace {

constexpr double kWidth = 760;
constexpr double kHeight = 420;
constexpr double kLeft = 64;
constexpr double kRight = 20;
constexpr double kTop = 56;
constexpr double kBottom = 52;

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&quot;";
        break;
      default:
        // XML 1.0 has no way to write the other control characters.
        if (static_cast<unsigned char>(c) >= 0x20) result += c;
    }
  }
  return result;
}

struct Frame {
  const Axis& steps;
  const Axis& values;
  [[nodiscard]] double x(double step) const {
    return kLeft + steps.position(step) * (kWidth - kLeft - kRight);
  }
  [[nodiscard]] double y(double value) const {
    return kHeight - kBottom - values.position(value) * (kHeight - kTop - kBottom);
  }
};

std::string polyline(const Frame& frame, std::span<const Point> points, std::string_view style) {
  if (points.empty()) return "";
  std::string coordinates;
  for (const Point& point : points) {
    coordinates += fmt::format("{}{:.1f},{:.1f}", coordinates.empty() ? "" : " ", frame.x(point.x),
                               frame.y(point.y));
  }
  return fmt::format("<polyline class=\"{}\" points=\"{}\"/>\n", style, coordinates);
}

std::string axes(const Frame& frame, std::string_view y_label) {
  std::string svg;
  const double bottom = kHeight - kBottom;
  for (const double tick : frame.values.ticks()) {
    const double y = frame.y(tick);
    svg += fmt::format(
        "<line class=\"grid\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>\n"
        "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n",
        kLeft, y, kWidth - kRight, y, kLeft - 8, y + 4, frame.values.label(tick));
  }
  for (const double tick : frame.steps.ticks()) {
    const double x = frame.x(tick);
    svg += fmt::format(
        "<line class=\"axis\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>\n"
        "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n",
        x, bottom, x, bottom + 5, x, bottom + 20, frame.steps.label(tick));
  }
  svg += fmt::format(
      "<line class=\"axis\" x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{2:.1f}\" y2=\"{1:.1f}\"/>\n"
      "<line class=\"axis\" x1=\"{0:.1f}\" y1=\"{3:.1f}\" x2=\"{0:.1f}\" y2=\"{1:.1f}\"/>\n"
      "<text x=\"{4:.1f}\" y=\"{5:.1f}\" text-anchor=\"middle\">step</text>\n"
      "<text transform=\"translate(18 {6:.1f}) rotate(-90)\" text-anchor=\"middle\">{7}"
      "</text>\n",
      kLeft, bottom, kWidth - kRight, kTop, (kLeft + kWidth - kRight) / 2, kHeight - 12,
      (kTop + bottom) / 2, escaped(y_label));
  return svg;
}

std::string_view class_of(Style style) {
  switch (style) {
    case Style::raw:
      return "raw";
    case Style::train:
      return "train";
    case Style::val:
      return "val";
    case Style::forecast:
      return "forecast";
    case Style::edge:
      return "edge";
    case Style::limit:
      return "limit";
  }
  return "";
}

// From the right; a label's width is guessed from its characters.
std::string legend(const Plot& plot) {
  constexpr double kSample = 24;
  constexpr double kCharacter = 6.6;
  std::string svg;
  double right = kWidth - kRight;
  for (auto series = plot.series.rbegin(); series != plot.series.rend(); ++series) {
    if (series->label.empty()) continue;
    const double left =
        right - kSample - 6 - kCharacter * static_cast<double>(series->label.size());
    if (series->style == Style::val) {
      svg += fmt::format("<circle class=\"dot\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\"/>\n",
                         left + kSample / 2, kTop - 20);
    } else {
      svg += fmt::format(
          "<line class=\"{0}\" x1=\"{1:.1f}\" y1=\"{2:.1f}\" x2=\"{3:.1f}\" y2=\"{2:.1f}\"/>\n",
          class_of(series->style), left, kTop - 20, left + kSample);
    }
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", left + kSample + 6, kTop - 16,
                       escaped(series->label));
    right = left - 18;
  }
  return svg;
}

std::string band(const Frame& frame, const Plot& plot) {
  if (plot.band_low.empty()) return "";
  std::string coordinates;
  const auto add = [&](const Point& point) {
    coordinates += fmt::format("{}{:.1f},{:.1f}", coordinates.empty() ? "" : " ", frame.x(point.x),
                               frame.y(point.y));
  };
  std::for_each(plot.band_high.begin(), plot.band_high.end(), add);
  std::for_each(plot.band_low.rbegin(), plot.band_low.rend(), add);
  return fmt::format("<polygon class=\"band\" points=\"{}\"/>\n", coordinates);
}

}  // namespace

std::string draw_svg(const Plot& plot) {
  constexpr std::size_t kPoints = 500;
  const Axis values = value_axis(plot, 7);
  const Axis steps = step_axis(plot, 8);
  const Frame frame{steps, values};
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
      "height=\"{1}\" role=\"img\" aria-label=\"{2}\">\n"
      "<style>\n"
      "text {{ font: 13px system-ui, sans-serif; fill: #57606a; }}\n"
      ".title {{ font-size: 16px; font-weight: 600; }}\n"
      ".grid {{ stroke: #8b949e; stroke-opacity: 0.25; }}\n"
      ".axis {{ stroke: #8b949e; }}\n"
      ".raw, .train, .val, .forecast, .edge, .limit {{ fill: none; stroke-linejoin: round; }}\n"
      ".raw {{ stroke: #3b82f6; stroke-opacity: 0.35; }}\n"
      ".train {{ stroke: #3b82f6; stroke-width: 2; }}\n"
      ".val {{ stroke: #f97316; stroke-width: 1.5; stroke-dasharray: 4 3; }}\n"
      ".forecast {{ stroke: #f97316; stroke-width: 2; }}\n"
      ".edge {{ stroke: #f97316; stroke-dasharray: 2 3; }}\n"
      ".limit {{ stroke: #dc2626; stroke-width: 1.5; stroke-dasharray: 8 4; }}\n"
      ".band {{ fill: #f97316; fill-opacity: 0.18; }}\n"
      ".dot {{ fill: #f97316; }}\n"
      "@media (prefers-color-scheme: dark) {{ text {{ fill: #c9d1d9; }} }}\n"
      "</style>\n"
      "<text class=\"title\" x=\"{3:.1f}\" y=\"24\">{2}</text>\n",
      kWidth, kHeight, escaped(plot.title), kLeft);
  svg += axes(frame, plot.y_label);
  svg += band(frame, plot);
  for (const Series& series : plot.series) {
    const bool marked = series.style == Style::val;
    svg += polyline(frame, marked ? series.points : thinned(series.points, kPoints),
                    class_of(series.style));
    if (!marked) continue;
    for (const Point& point : series.points) {
      svg += fmt::format("<circle class=\"dot\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.5\"/>\n",
                         frame.x(point.x), frame.y(point.y));
    }
  }
  svg += legend(plot);
  return svg + "</svg>\n";
}

}  // namespace belay
