#pragma once
// The directory that a run writes into.

#include <memory>
#include <string>

#include "belay/train/run_lock.h"

namespace belay {

// Makes the directory and locks it, removes what a process that no longer exists has left half
// done, and sends the log there. Error(usage) when it holds a run already, unless that is to go on.
std::unique_ptr<RunLock> open_run_directory(const std::string& out, bool go_on);

// The newest good snapshot of the run; empty when there is none. Says what it passed over.
std::string newest_snapshot(const std::string& out);

}  // namespace belay
