#pragma once
// Which parameters make up which layer, read off their names: "layers.3.ffn.up.weight" belongs to
// "layers.3", "embedding.weight" to "embedding".

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace belay {

class LayerGroups {
 public:
  explicit LayerGroups(std::span<const std::string> parameter_names);

  [[nodiscard]] int size() const { return static_cast<int>(names_.size()); }
  [[nodiscard]] const std::vector<std::string>& names() const { return names_; }
  [[nodiscard]] const std::string& name(int layer) const {
    return names_[static_cast<std::size_t>(layer)];
  }

  // The L2 norm of each layer's gradient: squares[i] is the sum of squares of parameter i's, the
  // norm is divided by `divisor`. norms has size() elements.
  void norms(std::span<const double> squares, double divisor, std::span<double> norms) const;

 private:
  std::vector<std::string> names_;
  std::vector<int> layers_;
};

// The layer's name as a part of the parameter's.
std::string_view layer_name(std::string_view parameter);

}  // namespace belay
