#pragma once
// For tests: how often the heap was asked for memory through operator new, by any thread and any
// library of the process. Only the test binaries count (allocation_count_test.cc).

#include <cstdint>

namespace belay {

std::int64_t allocation_count();

}  // namespace belay
