#pragma once
// Where parameters lie that exist only while they are used: weights gathered for a layer, gradients
// until they have been handed over. All layers take the same place, one after the other. What is in
// front of the layers and what is behind them take the same place too, unless the embedding is used
// at both ends.

#include <vector>

#include "belay/model/shard_map.h"

namespace belay {

class ParameterPool {
 public:
  ParameterPool(const ParameterTable& table, const ShardMap& map);

  // Place of an element of the flat state that belongs to the unit.
  [[nodiscard]] std::int64_t at(int unit, std::int64_t flat) const {
    const auto index = static_cast<std::size_t>(unit);
    return regions_[index] + flat - begins_[index];
  }
  [[nodiscard]] std::int64_t of(int parameter) const {
    return places_[static_cast<std::size_t>(parameter)];
  }
  [[nodiscard]] std::int64_t elements() const { return elements_; }
  // Whether using one unit takes the place of the other.
  [[nodiscard]] bool shared(int unit, int other) const {
    return regions_[static_cast<std::size_t>(unit)] == regions_[static_cast<std::size_t>(other)];
  }

 private:
  std::vector<std::int64_t> regions_;  // by unit
  std::vector<std::int64_t> begins_;   // by unit, in the flat state
  std::vector<std::int64_t> places_;   // by parameter
  std::int64_t elements_ = 0;
};

}  // namespace belay
