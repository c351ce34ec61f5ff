#pragma once
// The engine's version, as CMakeLists.txt states it.

#include <string_view>

namespace belay {

std::string_view engine_version();

}  // namespace belay
