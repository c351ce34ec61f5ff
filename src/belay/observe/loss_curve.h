#pragma once
// Loss curves: read from a run's metrics.jsonl, drawn as text or as an SVG picture.

#include <string>
#include <string_view>
#include <vector>

#include "belay/observe/plot.h"

namespace belay {

struct LossHistory {
  std::vector<Point> train;  // step, loss
  std::vector<Point> val;
};

// Losses that are not finite are left out; a torn last line is ignored. Error(data) names file and
// line of anything else that is not a record.
LossHistory read_loss_history(const std::string& path);

std::string draw_text(const LossHistory& history, int width, int height, Scale scale);
std::string draw_svg(const LossHistory& history, std::string_view title, Scale scale);

}  // namespace belay
