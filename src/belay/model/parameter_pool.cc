#include "belay/model/parameter_pool.h"

#include <algorithm>

namespace belay {

ParameterPool::ParameterPool(const ParameterTable& table, const ShardMap& map) {
  std::int64_t layer = 0;  // elements of the largest
  std::int64_t ends = 0;
  const bool tied = table.find("head.weight") < 0;
  for (const ShardUnit& unit : map.units()) {
    const std::int64_t elements = unit.end - unit.begin;
    if (unit.layer >= 0) {
      layer = std::max(layer, elements);
    } else {
      ends = tied ? ends + elements : std::max(ends, elements);
    }
  }
  std::int64_t next = layer;
  for (const ShardUnit& unit : map.units()) {
    begins_.push_back(unit.begin);
    regions_.push_back(unit.layer >= 0 ? 0 : next);
    if (unit.layer < 0 && tied) next += unit.end - unit.begin;
  }
  elements_ = layer + ends;
  for (std::size_t unit = 0; unit < map.units().size(); ++unit) {
    const ShardUnit& range = map.units()[unit];
    for (int index = 0; index < table.size(); ++index) {
      const std::int64_t offset = table[index].offset;
      if (offset < range.begin || offset >= range.end) continue;
      places_.push_back(at(static_cast<int>(unit), offset));
    }
  }
}

}  // namespace belay
