#pragma once
// A device without memory: lanes write down the calls instead of running them. A program that is
// driven on it yields its operator list and the size of every arena before anything is allocated.

#include <memory>
#include <vector>

#include "belay/device/device.h"

namespace belay {

// Keeps every call; executes none. With a lane of a real program the recorded operands are real.
class RecordingLane final : public Lane {
 public:
  explicit RecordingLane(Device& device) : device_(device) {}
  [[nodiscard]] Device& device() override { return device_; }
  void submit(const OpCall& call) override { calls_.push_back(call); }
  void copy_in(void*, const void*, std::size_t) override {}
  void copy_out(void*, const void*, std::size_t) override {}
  void wait() override {}
  void reserve_workspace(std::size_t) override {}
  [[nodiscard]] const std::vector<OpCall>& calls() const { return calls_; }

 private:
  Device& device_;
  std::vector<OpCall> calls_;
};

// Same kernels and choices as `target`; addresses that nobody may touch.
class DryDevice final : public Device {
 public:
  explicit DryDevice(const Device& target) : target_(target) {
    matmul_choices() = target.matmul_choices();
  }
  [[nodiscard]] std::string_view name() const override { return target_.name(); }
  std::unique_ptr<DeviceMemory> allocate(std::size_t bytes, std::string_view purpose) override;
  std::unique_ptr<Lane> create_lane() override { return std::make_unique<RecordingLane>(*this); }
  [[nodiscard]] const KernelTable& kernels() const override { return target_.kernels(); }

 private:
  const Device& target_;
  std::uintptr_t next_ = std::uintptr_t{1} << 44;
};

}  // namespace belay
