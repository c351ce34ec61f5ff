#include "belay/plan/dry_device.h"

#include "belay/base/arena.h"

namespace belay {
namespace {

class NoMemory final : public DeviceMemory {
 public:
  NoMemory(std::uintptr_t address, std::size_t bytes) : address_(address), bytes_(bytes) {}
  [[nodiscard]] void* address() const override {
    return reinterpret_cast<void*>(address_);  // NOLINT(performance-no-int-to-ptr)
  }
  [[nodiscard]] std::size_t bytes() const override { return bytes_; }

 private:
  std::uintptr_t address_;
  std::size_t bytes_;
};

}  // namespace

std::unique_ptr<DeviceMemory> DryDevice::allocate(std::size_t bytes, std::string_view) {
  const std::uintptr_t address = next_;
  next_ += (bytes / kAlignment + 2) * kAlignment;
  return std::make_unique<NoMemory>(address, bytes);
}

}  // namespace belay
