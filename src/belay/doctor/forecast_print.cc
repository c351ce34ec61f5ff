// A ForecastReport as text and as JSON.

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "belay/doctor/forecast_report.h"

namespace belay {
namespace {

std::string remark(const LayerOutlook& layer) {
  if (!layer.fitted) return "too few steps, or always the same";
  if (layer.leaves_in > 0) return fmt::format("leaves the head room in {} steps", layer.leaves_in);
  if (layer.endangered_in > 0) {
    return fmt::format("may leave the head room in {} steps", layer.endangered_in);
  }
  return "";
}

}  // namespace

std::string report_text(const ForecastReport& report) {
  std::size_t width = 5;
  for (const LayerOutlook& layer : report.layers) width = std::max(width, layer.name.size());
  std::string text = fmt::format(
      "as of step {}, {} steps ahead; loss scale {}, head room {:.4g}{}\n"
      "{:<{}}  {:>9}  {:>9}  {:>19}  {:>9}  {:<22}\n",
      report.step, report.horizon, report.scale, report.limit / report.scale,
      report.overflows > 0 ? fmt::format(", {} steps overflowed so far", report.overflows) : "",
      "layer", width, "now", "forecast", fmt::format("{:.0f}% band", 100 * report.confidence),
      "head room", "model");
  for (const LayerOutlook& layer : report.layers) {
    std::string line =
        layer.fitted
            ? fmt::format("{:<{}}  {:>9.3g}  {:>9.3g}  {:>9.3g} {:>9.3g}  {:>8.2g}%  {:<19}",
                          layer.name, width, layer.now, layer.median, layer.low, layer.high,
                          100 * layer.share_high, to_string(layer.order))
            : fmt::format("{:<{}}  {:>9.3g}", layer.name, width, layer.now);
    const std::string note = remark(layer);
    if (!note.empty()) line += "  " + note;
    if (layer.compared > 0) {
      line += fmt::format("  {} of {} came true within the band", layer.inside, layer.compared);
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

std::string report_json(const ForecastReport& report) {
  nlohmann::ordered_json layers = nlohmann::ordered_json::array();
  for (const LayerOutlook& layer : report.layers) {
    nlohmann::ordered_json json = {{"name", layer.name}, {"now", layer.now}};
    json["share_now"] = layer.share_now;
    json["fitted"] = layer.fitted;
    if (layer.fitted) {
      json["order"] = {layer.order.p, layer.order.d, layer.order.q};
      json["drift"] = layer.order.d > 0 && layer.order.drift;
      json["median"] = layer.median;
      json["low"] = layer.low;
      json["high"] = layer.high;
      json["share_median"] = layer.share_median;
      json["share_high"] = layer.share_high;
      json["leaves_in"] = layer.leaves_in;
      json["endangered_in"] = layer.endangered_in;
      json["compared"] = layer.compared;
      json["inside"] = layer.inside;
    }
    layers.push_back(std::move(json));
  }
  const nlohmann::ordered_json json = {{"step", report.step},
                                       {"horizon", report.horizon},
                                       {"confidence", report.confidence},
                                       {"loss_scale", report.scale},
                                       {"limit", report.limit},
                                       {"overflows", report.overflows},
                                       {"drawn", report.layers[report.drawn].name},
                                       {"layers", std::move(layers)}};
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace belay
