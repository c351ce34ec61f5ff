#pragma once
// The median of measurements.

#include <algorithm>
#include <iterator>
#include <vector>

namespace belay {

// Of an even number the upper one of the two in the middle; of none 0.
inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace belay
