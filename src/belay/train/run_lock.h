#pragma once
// One training per run directory: two would interleave their records and remove each other's
// snapshots.

#include <string>

namespace belay {

class RunLock {
 public:
  // Error(usage) naming the process that holds the directory. The lock goes with the process,
  // however it ends.
  explicit RunLock(const std::string& run_dir);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  int file_ = -1;
};

}  // namespace belay
