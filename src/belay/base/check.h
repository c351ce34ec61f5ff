#pragma once
// Assertions for programmer mistakes only; never reachable from user input.

#include <cstdio>
#include <cstdlib>

namespace belay {
[[noreturn]] inline void check_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: check failed: %s\n", file, line, condition);
  std::abort();
}
}  // namespace belay

#define BELAY_CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::belay::check_failed(#condition, __FILE__, __LINE__))
