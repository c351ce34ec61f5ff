#include "belay/precision/layer_groups.h"

#include <algorithm>
#include <cmath>

#include "belay/base/check.h"

namespace belay {

std::string_view layer_name(std::string_view parameter) {
  constexpr std::string_view kLayers = "layers.";
  const std::size_t from = parameter.starts_with(kLayers) ? kLayers.size() : 0;
  return parameter.substr(0, parameter.find('.', from));
}

LayerGroups::LayerGroups(std::span<const std::string> parameter_names) {
  for (const std::string& parameter : parameter_names) {
    const std::string_view name = layer_name(parameter);
    const auto found = std::find(names_.begin(), names_.end(), name);
    layers_.push_back(static_cast<int>(found - names_.begin()));
    if (found == names_.end()) names_.emplace_back(name);
  }
}

void LayerGroups::norms(std::span<const double> squares, double divisor,
                        std::span<double> norms) const {
  BELAY_CHECK(squares.size() == layers_.size() && norms.size() == names_.size());
  std::fill(norms.begin(), norms.end(), 0.0);
  for (std::size_t index = 0; index < squares.size(); ++index) {
    norms[static_cast<std::size_t>(layers_[index])] += squares[index];
  }
  for (double& norm : norms) norm = std::sqrt(norm) / divisor;
}

}  // namespace belay
