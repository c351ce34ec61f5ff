#pragma once
// For tests: a parameter table of given names and shapes.

#include <string>
#include <utility>
#include <vector>

#include "belay/model/parameter_table.h"

namespace belay::testing {

inline ParameterTable table_of(const std::vector<std::pair<std::string, Shape>>& tensors) {
  ParameterTable table;
  for (const auto& [name, shape] : tensors) {
    Parameter parameter;
    parameter.name = name;
    parameter.shape = shape;
    table.add(parameter);
  }
  return table;
}

}  // namespace belay::testing
