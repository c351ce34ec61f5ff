#pragma once
// [snapshot]: what to do around saving. How often to save is in [train].

#include <cstdint>
#include <span>

#include "belay/base/config.h"

namespace belay {

enum class OnFailure : std::uint8_t { stop, proceed };

struct SnapshotConfig {
  OnFailure on_failure = OnFailure::stop;

  static constexpr std::string_view kSection = "snapshot";
  static std::span<const config::Field> fields();
};

}  // namespace belay
