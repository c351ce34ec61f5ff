#include "belay/comm/thread_transport.h"

#include <sys/mman.h>

#include <bit>

#include "belay/base/error.h"

namespace belay::comm {
namespace {

void* map(std::size_t bytes) {
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) fail(ExitCode::capacity, "cannot map {} MiB of memory", bytes >> 20);
  return memory;
}

// In one process every rank can follow every pointer.
class ThreadTransport final : public SharedTransport {
 public:
  using SharedTransport::SharedTransport;

  [[nodiscard]] bool readable(const void*, std::size_t) const override { return true; }
  // Mapped, so that what is never touched costs nothing. The first line holds the size.
  void* allocate(std::size_t bytes) override {
    void* const memory = map(bytes + kLine);
    *static_cast<std::size_t*>(memory) = bytes + kLine;
    return static_cast<std::byte*>(memory) + kLine;
  }
  void deallocate(void* memory) override {
    void* const start = static_cast<std::byte*>(memory) - kLine;
    munmap(start, *static_cast<std::size_t*>(start));
  }

 protected:
  [[nodiscard]] std::uint64_t shared_address(const void* data) const override {
    return std::bit_cast<std::uint64_t>(data);
  }
  [[nodiscard]] const void* local_pointer(int, std::uint64_t address) const override {
    return std::bit_cast<const void*>(address);
  }
};

}  // namespace

ThreadGroup::ThreadGroup(int ranks) : bytes_(SharedChannels::bytes_for(ranks)) {
  memory_ = map(bytes_);
  const SharedChannels channels(memory_, ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    transports_.push_back(std::make_unique<ThreadTransport>(channels, rank));
  }
}

ThreadGroup::~ThreadGroup() {
  munmap(memory_, bytes_);
}

}  // namespace belay::comm
