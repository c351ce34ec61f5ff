#include "belay/comm/mpi_shared.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "belay/base/check.h"

namespace belay::comm {
namespace {

// The pages that lie within this memory as a whole.
struct Pages {
  explicit Pages(const void* memory, std::size_t bytes) {
    const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
    const auto address = reinterpret_cast<std::uintptr_t>(memory);
    begin = (address + page - 1) / page * page;
    end = std::max((address + bytes) / page * page, begin);
  }
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
};

}  // namespace

MpiWindows::MpiWindows(MPI_Comm host) : host_(host) {
  MPI_Comm_rank(host_, &rank_);
  MPI_Comm_size(host_, &size_);
}

void* MpiWindows::allocate(std::size_t bytes) {
  const std::size_t whole = std::max<std::size_t>((bytes + kLine - 1) / kLine * kLine, kLine);
  const auto fitting = std::find_if(windows_.begin(), windows_.end(), [&](const Window& window) {
    return !window.in_use && window.bytes >= whole;
  });
  if (fitting != windows_.end()) {
    fitting->in_use = true;
    auto* const memory = const_cast<std::byte*>(fitting->bases[static_cast<std::size_t>(rank_)]);
    std::memset(memory, 0, bytes);
    return memory;
  }
  MPI_Info info = MPI_INFO_NULL;
  check_mpi(MPI_Info_create(&info), "MPI_Info_create");
  // Each rank's part begins at a page of its own.
  MPI_Info_set(info, "alloc_shared_noncontig", "true");
  Window window;
  window.bytes = whole;
  void* own = nullptr;
  // MPI may put its own words in front; room to go on to the next cache line.
  const int code = MPI_Win_allocate_shared(static_cast<MPI_Aint>(whole + kLine), 1, info, host_,
                                           &own, &window.window);
  MPI_Info_free(&info);
  if (code != MPI_SUCCESS) {
    fail(ExitCode::capacity,
         "cannot share {} MiB per rank among the {} ranks of this host; is /dev/shm full?",
         whole >> 20, size_);
  }
  for (int rank = 0; rank < size_; ++rank) {
    MPI_Aint size = 0;
    int unit = 0;
    void* base = nullptr;
    check_mpi(MPI_Win_shared_query(window.window, rank, &size, &unit, &base),
              "MPI_Win_shared_query");
    // Mappings begin at pages, so the same place in every process, though not the page's first
    // byte.
    const auto address = reinterpret_cast<std::uintptr_t>(base);
    const std::uintptr_t aligned = (address + kLine - 1) / kLine * kLine;
    window.bases.push_back(reinterpret_cast<const std::byte*>(aligned));
  }
  window.in_use = true;
  windows_.push_back(std::move(window));
  auto* const memory =
      const_cast<std::byte*>(windows_.back().bases[static_cast<std::size_t>(rank_)]);
  // Fresh files are zeros; a rank without company gets memory from MPI that others have used.
  if (size_ == 1) std::memset(memory, 0, whole);
  return memory;
}

void MpiWindows::deallocate(void* memory) {
  for (Window& window : windows_) {
    if (window.bases[static_cast<std::size_t>(rank_)] != memory) continue;
    window.in_use = false;
    const Pages pages(memory, window.bytes);
    // Not every file system can; then the memory stays until the end.
    static_cast<void>(madvise(reinterpret_cast<void*>(pages.begin), pages.end - pages.begin,
                              size_ == 1 ? MADV_DONTNEED : MADV_REMOVE));
    return;
  }
}

void MpiWindows::free_all() {
  for (Window& window : windows_) MPI_Win_free(&window.window);
  windows_.clear();
}

bool MpiWindows::contains(const void* data, std::size_t bytes) const {
  const auto* const begin = static_cast<const std::byte*>(data);
  return std::any_of(windows_.begin(), windows_.end(), [&](const Window& window) {
    const std::byte* const own = window.bases[static_cast<std::size_t>(rank_)];
    return begin >= own && begin + bytes <= own + window.bytes;
  });
}

std::uint64_t MpiWindows::address(const void* data) const {
  const auto* const begin = static_cast<const std::byte*>(data);
  for (std::size_t index = 0; index < windows_.size(); ++index) {
    const Window& window = windows_[index];
    const std::byte* const own = window.bases[static_cast<std::size_t>(rank_)];
    if (begin < own || begin > own + window.bytes) continue;
    return (static_cast<std::uint64_t>(index) << kOffsetBits) |
           static_cast<std::uint64_t>(begin - own);
  }
  BELAY_CHECK(data == nullptr);
  return 0;
}

std::unique_ptr<MpiSharedTransport> MpiSharedTransport::make(MPI_Comm host) {
  int rank = 0;
  int size = 1;
  MPI_Comm_rank(host, &rank);
  MPI_Comm_size(host, &size);
  MpiWindows windows(host);
  // Every rank maps the part of rank 0; the other parts stay empty.
  const std::size_t bytes = SharedChannels::bytes_for(size);
  void* const own = windows.allocate(rank == 0 ? bytes : 0);
  const void* const memory = windows.pointer(0, windows.address(own));
  if (rank == 0) std::memset(own, 0, bytes - SharedChannels::post_area(size));
  check_mpi(MPI_Barrier(host), "MPI_Barrier");
  return std::make_unique<MpiSharedTransport>(SharedChannels(const_cast<void*>(memory), size), rank,
                                              std::move(windows));
}

}  // namespace belay::comm
