#pragma once
// Host memory that ranks exchange data through, in equal buffers.

#include <cstddef>
#include <span>
#include <vector>

#include "belay/comm/communicator.h"

namespace belay {

class ExchangeBuffers {
 public:
  // Collective. `communicator` must outlive the buffers.
  ExchangeBuffers(comm::Communicator& communicator, std::size_t count, std::size_t bytes)
      : communicator_(communicator) {
    for (std::size_t i = 0; i < count; ++i) memory_.push_back(communicator.allocate(bytes));
  }
  ~ExchangeBuffers() {
    for (void* memory : memory_) communicator_.deallocate(memory);
  }
  ExchangeBuffers(const ExchangeBuffers&) = delete;
  ExchangeBuffers& operator=(const ExchangeBuffers&) = delete;

  [[nodiscard]] std::span<void* const> all() const { return memory_; }

 private:
  comm::Communicator& communicator_;
  std::vector<void*> memory_;
};

}  // namespace belay
