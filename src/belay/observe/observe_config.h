#pragma once
// [observe]: what a run records about itself.

#include <cstdint>
#include <span>

#include "belay/base/config.h"

namespace belay {

struct ObserveConfig {
  bool tensorboard = true;
  std::int64_t console_every = 10;
  std::int64_t timeline_spans = 200000;
  double memory_growth_warning = 1.0;

  static constexpr std::string_view kSection = "observe";
  static std::span<const config::Field> fields();
};

}  // namespace belay
