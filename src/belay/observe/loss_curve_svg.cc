#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "belay/observe/loss_curve.h"

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

std::string axes(const Frame& frame) {
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
      "<text transform=\"translate(18 {6:.1f}) rotate(-90)\" text-anchor=\"middle\">"
      "loss (nats per token)</text>\n",
      kLeft, bottom, kWidth - kRight, kTop, (kLeft + kWidth - kRight) / 2, kHeight - 12,
      (kTop + bottom) / 2);
  return svg;
}

std::string legend(bool with_validation) {
  std::string svg = fmt::format(
      "<line class=\"train\" x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{2:.1f}\" y2=\"{1:.1f}\"/>\n"
      "<text x=\"{3:.1f}\" y=\"{4:.1f}\">train</text>\n",
      kWidth - 210, kTop - 20, kWidth - 186, kWidth - 180, kTop - 16);
  if (with_validation) {
    svg += fmt::format(
        "<circle class=\"dot\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\"/>\n"
        "<text x=\"{:.1f}\" y=\"{:.1f}\">validation</text>\n",
        kWidth - 112, kTop - 20, kWidth - 100, kTop - 16);
  }
  return svg;
}

}  // namespace

std::string draw_svg(const LossHistory& history, std::string_view title, Scale scale) {
  constexpr std::size_t kPoints = 500;
  const Axis values = value_axis(history, scale, 7);
  const Axis steps = step_axis(history, 8);
  const Frame frame{steps, values};
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
      "height=\"{1}\" role=\"img\" aria-label=\"{2}\">\n"
      "<style>\n"
      "text {{ font: 13px system-ui, sans-serif; fill: #57606a; }}\n"
      ".title {{ font-size: 16px; font-weight: 600; }}\n"
      ".grid {{ stroke: #8b949e; stroke-opacity: 0.25; }}\n"
      ".axis {{ stroke: #8b949e; }}\n"
      ".raw, .train, .val {{ fill: none; stroke-linejoin: round; }}\n"
      ".raw {{ stroke: #3b82f6; stroke-opacity: 0.35; }}\n"
      ".train {{ stroke: #3b82f6; stroke-width: 2; }}\n"
      ".val {{ stroke: #f97316; stroke-width: 1.5; stroke-dasharray: 4 3; }}\n"
      ".dot {{ fill: #f97316; }}\n"
      "@media (prefers-color-scheme: dark) {{ text {{ fill: #c9d1d9; }} }}\n"
      "</style>\n"
      "<text class=\"title\" x=\"{3:.1f}\" y=\"24\">{2}</text>\n",
      kWidth, kHeight, escaped(title), kLeft);
  svg += axes(frame);
  svg += polyline(frame, thinned(history.train, kPoints), "raw");
  // The average spans about two per cent of the run.
  const double span = std::max(1.0, static_cast<double>(history.train.size()) / 50);
  svg += polyline(frame, thinned(smoothed(history.train, 1 - 1 / span), kPoints), "train");
  svg += polyline(frame, history.val, "val");
  for (const Point& point : history.val) {
    svg += fmt::format("<circle class=\"dot\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.5\"/>\n",
                       frame.x(point.x), frame.y(point.y));
  }
  svg += legend(!history.val.empty());
  return svg + "</svg>\n";
}

}  // namespace belay
