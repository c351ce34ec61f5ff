#pragma once
// The processor's time stamp: a few nanoseconds to read, the same on all cores; how fast it runs is
// found out later, by whoever makes seconds of it. Elsewhere than on x86-64 nanoseconds.

#include <ctime>

#include <cstdint>

namespace belay::comm {

inline std::uint64_t clock_ns(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U +
         static_cast<std::uint64_t>(now.tv_nsec);
}

inline std::uint64_t ticks() {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#else
  return clock_ns(CLOCK_MONOTONIC);
#endif
}

}  // namespace belay::comm
