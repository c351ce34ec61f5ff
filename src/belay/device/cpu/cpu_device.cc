#include "belay/device/cpu/cpu_device.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "belay/base/error.h"
#include "belay/base/parallel.h"
#include "belay/device/cpu/kernels.h"
#include "belay/device/reference/kernels.h"

namespace belay {
namespace {

// Makes the system back the memory now, on all cores, instead of page by page during step 1.
void touch_pages(std::byte* base, std::size_t bytes) {
  constexpr std::size_t kPage = 4096;
  constexpr std::size_t kPiece = std::size_t{8} << 20;
  const auto pieces = static_cast<std::int64_t>((bytes + kPiece - 1) / kPiece);
  parallel_for(pieces, [&](std::int64_t piece) {
    const std::size_t begin = static_cast<std::size_t>(piece) * kPiece;
    const std::size_t end = std::min(bytes, begin + kPiece);
    for (std::size_t at = begin; at < end; at += kPage) {
      *const_cast<volatile std::byte*>(base + at) = std::byte{0};
    }
  });
}

class HostMemory final : public DeviceMemory {
 public:
  HostMemory(std::size_t bytes, std::string_view purpose) : bytes_(bytes) {
    if (bytes == 0) return;
    address_ = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (address_ == MAP_FAILED) {
      address_ = nullptr;
      fail(ExitCode::capacity, "cannot allocate {} bytes for {}: {}", bytes, purpose,
           std::strerror(errno));
    }
    ::madvise(address_, bytes, MADV_HUGEPAGE);
    touch_pages(static_cast<std::byte*>(address_), bytes);
  }
  ~HostMemory() override {
    if (address_ != nullptr) ::munmap(address_, bytes_);
  }
  [[nodiscard]] void* address() const override { return address_; }
  [[nodiscard]] std::size_t bytes() const override { return bytes_; }

 private:
  void* address_ = nullptr;
  std::size_t bytes_ = 0;
};

class InlineLane final : public Lane {
 public:
  explicit InlineLane(Device& device) : device_(device) {}
  Device& device() override { return device_; }
  void submit(const OpCall& call) override {
    reserve_workspace(call.workspace);
    KernelContext context;
    if (workspace_ != nullptr) {
      context = {static_cast<std::byte*>(workspace_->address()), workspace_bytes_};
    }
    execute(call, context);
  }
  void copy_in(void* device_memory, const void* host, std::size_t bytes) override {
    if (bytes != 0) std::memcpy(device_memory, host, bytes);
  }
  void copy_out(void* host, const void* device_memory, std::size_t bytes) override {
    if (bytes != 0) std::memcpy(host, device_memory, bytes);
  }
  void wait() override {}
  void reserve_workspace(std::size_t bytes) override {
    if (bytes <= workspace_bytes_) return;
    workspace_ = device_.allocate(bytes, "kernel workspace");
    workspace_bytes_ = bytes;
  }

 private:
  Device& device_;
  std::unique_ptr<DeviceMemory> workspace_;
  std::size_t workspace_bytes_ = 0;
};

class CpuDevice final : public Device {
 public:
  CpuDevice(std::string_view name, const KernelTable& kernels) : name_(name), kernels_(kernels) {}
  [[nodiscard]] std::string_view name() const override { return name_; }
  std::unique_ptr<DeviceMemory> allocate(std::size_t bytes, std::string_view purpose) override {
    return std::make_unique<HostMemory>(bytes, purpose);
  }
  std::unique_ptr<Lane> create_lane() override { return std::make_unique<InlineLane>(*this); }
  [[nodiscard]] const KernelTable& kernels() const override { return kernels_; }

 private:
  std::string_view name_;
  const KernelTable& kernels_;
};

template <class... Args>
KernelTable cpu_table(OpList<Args...>) {
  return {{cpu_candidates(OpTag<Args>{})...}};
}

}  // namespace

std::unique_ptr<Device> make_cpu_device() {
  static const KernelTable kTable = cpu_table(AllOps{});
  return std::make_unique<CpuDevice>("cpu", kTable);
}

std::unique_ptr<Device> make_reference_device() {
  return std::make_unique<CpuDevice>("reference", reference_table());
}

}  // namespace belay
