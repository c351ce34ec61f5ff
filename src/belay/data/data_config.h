#pragma once
// [data]: where the packed tokens lie and how they are read.

#include <cstdint>
#include <span>
#include <string>

#include "belay/base/config.h"

namespace belay {

struct DataConfig {
  std::string train;
  std::string val;
  std::int64_t workers = 1;
  std::int64_t prefetch = 4;
  bool isolate_documents = true;

  static constexpr std::string_view kSection = "data";
  static std::span<const config::Field> fields();
};

}  // namespace belay
