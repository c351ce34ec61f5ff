#pragma once
// How a command's failure is told.

#include <functional>

#include "belay/base/error.h"
#include "belay/comm/world.h"

namespace belay {

// Writes the message, if any, to stderr and to the log file of a run. Returns the exit code.
int report(const Error& error);

// Joins the ranks that mpirun started and runs `body` as one of them. What fails is reported while
// the ranks are still together, as the first process that ends makes mpirun end the others; it
// leaves as an Error with nothing more to say.
void as_rank(const comm::WorldOptions& options, const std::function<void(comm::World&)>& body);

}  // namespace belay
