#pragma once
// Proves that a schedule is right, by running it on symbols: a value is the set of ranks whose
// contribution it holds, the element it belongs to, and how the sum associates.

#include <cstdint>
#include <string>
#include <vector>

#include "belay/comm/schedule.h"

namespace belay::comm {

struct CheckOptions {
  // Messages that fit between one rank and another on one lane, for `post`.
  int capacity = 1;
  // Whether input, output and work share memory wherever they may (see schedule.h). Both must hold:
  // shared is the strictest about what overlaps, separate about what has been written.
  bool shared = false;
  // Whether sums must associate as order_stable() in algorithm.h says.
  bool order_stable = false;
};

// What is wrong with the programs, one per rank, of a schedule with these properties; empty if
// nothing is:
//   - every step is well-formed and within its buffers, and reads only what has been written;
//   - no two unordered steps of a rank touch one element, one of them writing;
//   - sends and receives match in order, number and element type, and no wait is circular with
//     the given capacity;
//   - each contribution arrives exactly once in every result, nothing else does, and sums that
//     several ranks hold associate alike on all of them;
//   - partial results are only kept and sent in the accumulation type.
// At most 128 ranks.
std::string check_programs(const Schedule& schedule, const std::vector<Program>& programs,
                           const CheckOptions& options = {});

// The same for the programs that the schedule gives.
std::string check_schedule(const Schedule& schedule, const CheckOptions& options = {});

}  // namespace belay::comm
