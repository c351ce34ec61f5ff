#pragma once
// Ranks that are threads of this process, for benchmarks where mpirun has started one.

#include <functional>

#include "belay/comm/transport.h"

namespace belay {

// Runs the body on each of so many ranks and returns when all have ended. Of what they threw, the
// first that is not of communication goes on its way, else the first: when a rank ends by an error,
// the others only find that it is gone.
void run_as_threads(int ranks, const std::function<void(comm::Transport&)>& body);

}  // namespace belay
