#pragma once
// How long ago something was.

#include <chrono>

namespace belay {

inline double ms_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
      .count();
}

}  // namespace belay
