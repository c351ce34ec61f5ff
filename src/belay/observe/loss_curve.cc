#include "belay/observe/loss_curve.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "belay/base/error.h"

namespace belay {
namespace {

void append_finite(std::vector<Point>& points, const nlohmann::json& record, const char* key) {
  const auto value = record.find(key);
  if (value == record.end() || !value->is_number()) return;
  points.push_back({record["step"].get<double>(), value->get<double>()});
}

Plot plot_of(Scale scale) {
  Plot plot;
  plot.short_label = "loss";
  plot.y_label = "loss (nats per token)";
  plot.scale = scale;
  return plot;
}

}  // namespace

LossHistory read_loss_history(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    fail(ExitCode::data, "cannot read {}: give the directory of a run that has started training",
         path);
  }
  LossHistory history;
  std::int64_t number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    const nlohmann::json record = nlohmann::json::parse(line, nullptr, false);
    if (!record.is_object() || !record.contains("step") || !record["step"].is_number()) {
      if (file.eof()) break;
      fail(ExitCode::data, "{}:{}: not a metrics record; remove the line or the file", path,
           number);
    }
    append_finite(history.train, record, "loss");
    append_finite(history.val, record, "val_loss");
  }
  return history;
}

std::string draw_text(const LossHistory& history, int width, int height, Scale scale) {
  Plot plot = plot_of(scale);
  plot.series = {{Style::train, "train", history.train}, {Style::val, "validation", history.val}};
  return draw_text(plot, width, height);
}

std::string draw_svg(const LossHistory& history, std::string_view title, Scale scale) {
  Plot plot = plot_of(scale);
  plot.title = title;
  // The average spans about two per cent of the run.
  const double span = std::max(1.0, static_cast<double>(history.train.size()) / 50);
  plot.series = {{Style::raw, "", history.train},
                 {Style::train, "train", smoothed(history.train, 1 - 1 / span)},
                 {Style::val, history.val.empty() ? "" : "validation", history.val}};
  return draw_svg(plot);
}

}  // namespace belay
