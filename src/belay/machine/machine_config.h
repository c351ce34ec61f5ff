#pragma once
// [machine]: how to use this machine.

#include <cstdint>
#include <span>
#include <string>

#include "belay/base/config.h"

namespace belay {

struct MachineConfig {
  std::int64_t threads = 0;
  std::string matmul = "auto";
  std::string cache;

  static constexpr std::string_view kSection = "machine";
  static std::span<const config::Field> fields();
};

}  // namespace belay
