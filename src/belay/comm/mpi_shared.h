#pragma once
// Ranks of one host: channels and memory in MPI shared-memory windows.

#include <memory>
#include <vector>

#include "belay/comm/mpi_call.h"
#include "belay/comm/shared_transport.h"

namespace belay::comm {

// Memory windows that every rank of the host has mapped. An address is the window's number and an
// offset in the owner's part of it.
class MpiWindows {
 public:
  explicit MpiWindows(MPI_Comm host);

  // Collective on the host.
  void* allocate(std::size_t bytes);
  // Gives the memory's whole pages back to the system and keeps the window for an allocation that
  // fits: closing it would need the other ranks, which may be gone.
  void deallocate(void* memory);
  // Lets windows go without the other ranks, when they may be gone.
  void abandon() { windows_.clear(); }
  void free_all();

  [[nodiscard]] bool contains(const void* data, std::size_t bytes) const;
  [[nodiscard]] std::uint64_t address(const void* data) const;
  [[nodiscard]] const void* pointer(int owner, std::uint64_t address) const {
    return windows_[static_cast<std::size_t>(address >> kOffsetBits)]
               .bases[static_cast<std::size_t>(owner)] +
           (address & ((std::uint64_t{1} << kOffsetBits) - 1));
  }

 private:
  static constexpr int kOffsetBits = 44;
  struct Window {
    MPI_Win window = MPI_WIN_NULL;
    std::size_t bytes = 0;
    bool in_use = false;
    std::vector<const std::byte*> bases;  // of each rank's part, as mapped here
  };
  MPI_Comm host_;
  int rank_ = 0;
  int size_ = 1;
  std::vector<Window> windows_;
};

class MpiSharedTransport final : public SharedTransport {
 public:
  // The channels' memory is a window too.
  static std::unique_ptr<MpiSharedTransport> make(MPI_Comm host);

  [[nodiscard]] bool readable(const void* data, std::size_t bytes) const override {
    return windows_.contains(data, bytes);
  }
  void* allocate(std::size_t bytes) override { return windows_.allocate(bytes); }
  void deallocate(void* memory) override { windows_.deallocate(memory); }
  MpiWindows& windows() { return windows_; }

  MpiSharedTransport(SharedChannels channels, int rank, MpiWindows windows)
      : SharedTransport(channels, rank), windows_(std::move(windows)) {}

 protected:
  [[nodiscard]] std::uint64_t shared_address(const void* data) const override {
    return windows_.address(data);
  }
  [[nodiscard]] const void* local_pointer(int owner, std::uint64_t address) const override {
    return windows_.pointer(owner, address);
  }

 private:
  MpiWindows windows_;
};

}  // namespace belay::comm
