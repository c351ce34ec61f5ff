#pragma once
// The clock of measurements: with one compute thread its processor time, so that neighbours who
// take turns on the core do not count; with several threads the wall clock, which is all that
// describes them together.

#include <chrono>
#include <ctime>

#include "belay/base/parallel.h"

namespace belay {

inline double busy_seconds() {
  if (thread_count() > 1) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace belay
