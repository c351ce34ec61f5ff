#include "belay/device/guard/guard_device.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <set>
#include <utility>
#include <variant>
#include <vector>

#include "belay/base/error.h"
#include "belay/device/reference/kernels.h"

namespace belay {
namespace {

class GuardMemory;

class GuardDevice final : public Device {
 public:
  [[nodiscard]] std::string_view name() const override { return "guard"; }
  std::unique_ptr<DeviceMemory> allocate(std::size_t bytes, std::string_view purpose) override;
  std::unique_ptr<Lane> create_lane() override;
  [[nodiscard]] const KernelTable& kernels() const override { return reference_table(); }

  void protect_all(int protection);
  std::set<GuardMemory*>& blocks() { return blocks_; }

 private:
  std::set<GuardMemory*> blocks_;
};

// Pages with an inaccessible page on either side.
class GuardMemory final : public DeviceMemory {
 public:
  GuardMemory(GuardDevice& device, std::size_t bytes, std::string_view purpose)
      : device_(device), bytes_(bytes), page_(static_cast<std::size_t>(::sysconf(_SC_PAGESIZE))) {
    usable_ = (bytes + page_ - 1) / page_ * page_;
    base_ = ::mmap(nullptr, usable_ + 2 * page_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base_ == MAP_FAILED) {
      fail(ExitCode::capacity, "cannot allocate {} bytes for {}: {}", bytes, purpose,
           std::strerror(errno));
    }
    device_.blocks().insert(this);
  }
  ~GuardMemory() override {
    device_.blocks().erase(this);
    ::munmap(base_, usable_ + 2 * page_);
  }
  [[nodiscard]] void* address() const override { return static_cast<std::byte*>(base_) + page_; }
  [[nodiscard]] std::size_t bytes() const override { return bytes_; }
  void protect(int protection) const {
    if (usable_ != 0 && ::mprotect(address(), usable_, protection) != 0) {
      fail(ExitCode::failure, "mprotect failed: {}", std::strerror(errno));
    }
  }

 private:
  GuardDevice& device_;
  std::size_t bytes_;
  std::size_t page_;
  std::size_t usable_ = 0;
  void* base_ = nullptr;
};

void GuardDevice::protect_all(int protection) {
  for (const GuardMemory* block : blocks_) block->protect(protection);
}

std::unique_ptr<DeviceMemory> GuardDevice::allocate(std::size_t bytes, std::string_view purpose) {
  return std::make_unique<GuardMemory>(*this, bytes, purpose);
}

class GuardLane final : public Lane {
 public:
  explicit GuardLane(GuardDevice& device) : device_(device) {}
  Device& device() override { return device_; }
  void submit(const OpCall& call) override { queue_.emplace_back(call); }
  void copy_in(void* device_memory, const void* host, std::size_t bytes) override {
    queue_.emplace_back(Copy{device_memory, host, bytes});
  }
  void copy_out(void* host, const void* device_memory, std::size_t bytes) override {
    queue_.emplace_back(Copy{host, device_memory, bytes});
  }
  void reserve_workspace(std::size_t) override {}  // each call gets fresh scratch
  void wait() override {
    const auto queue = std::exchange(queue_, {});
    if (queue.empty()) return;
    device_.protect_all(PROT_READ | PROT_WRITE);
    for (const auto& entry : queue) {
      if (const auto* copy = std::get_if<Copy>(&entry)) {
        if (copy->bytes != 0) std::memcpy(copy->dst, copy->src, copy->bytes);
        continue;
      }
      const auto& call = std::get<OpCall>(entry);
      std::vector<std::byte> workspace(call.workspace);
      KernelContext context{workspace.data(), workspace.size()};
      execute(call, context);
    }
    device_.protect_all(PROT_NONE);
  }

 private:
  struct Copy {
    void* dst;
    const void* src;
    std::size_t bytes;
  };
  GuardDevice& device_;
  std::vector<std::variant<OpCall, Copy>> queue_;
};

std::unique_ptr<Lane> GuardDevice::create_lane() {
  return std::make_unique<GuardLane>(*this);
}

}  // namespace

std::unique_ptr<Device> make_guard_device() {
  return std::make_unique<GuardDevice>();
}

}  // namespace belay
