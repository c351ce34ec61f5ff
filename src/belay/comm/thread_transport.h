#pragma once
// Ranks that are threads of one process: any number of them, for tests and measurements.

#include <memory>
#include <vector>

#include "belay/comm/shared_transport.h"

namespace belay::comm {

class ThreadGroup {
 public:
  explicit ThreadGroup(int ranks);
  ~ThreadGroup();
  ThreadGroup(const ThreadGroup&) = delete;
  ThreadGroup& operator=(const ThreadGroup&) = delete;

  [[nodiscard]] int size() const { return static_cast<int>(transports_.size()); }
  [[nodiscard]] Transport& transport(int rank) {
    return *transports_[static_cast<std::size_t>(rank)];
  }

 private:
  void* memory_;
  std::size_t bytes_;
  std::vector<std::unique_ptr<Transport>> transports_;
};

}  // namespace belay::comm
