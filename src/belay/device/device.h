#pragma once
// Device: memory, lanes and kernels. Device memory is opaque: host code reaches it only through
// kernels and explicit copies, and waits before it reads what it copied.

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "belay/device/kernel.h"
#include "belay/device/matmul_choice.h"
#include "belay/device/ops/all.h"

namespace belay {

class Device;

// Told about every call that a lane has executed. Times are from std::chrono::steady_clock.
class OpRecorder {
 public:
  OpRecorder() = default;
  virtual ~OpRecorder() = default;
  OpRecorder(const OpRecorder&) = delete;
  OpRecorder& operator=(const OpRecorder&) = delete;
  virtual void record(const OpCall& call, std::chrono::steady_clock::time_point begin,
                      std::chrono::steady_clock::time_point end) = 0;
};

// Calls that a lane has executed.
struct OpCounts {
  std::int64_t low_precision = 0;   // computed in 16 bits
  std::int64_t full_precision = 0;  // the others
  std::int64_t overflowing = 0;     // that left an infinity or NaN in an f16 result, or would have
};

// An in-order queue of operator calls. Lane calls never allocate on the heap once warm.
class Lane {
 public:
  Lane() = default;
  virtual ~Lane() = default;
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  [[nodiscard]] virtual Device& device() = 0;
  virtual void submit(const OpCall& call) = 0;
  // Copies are ordered with the calls around them. The host memory must stay valid, and is not to
  // be read (copy_out) or written (copy_in), until wait() returns.
  virtual void copy_in(void* device_memory, const void* host, std::size_t bytes) = 0;
  virtual void copy_out(void* host, const void* device_memory, std::size_t bytes) = 0;
  // Returns when everything submitted so far is done; throws what an earlier call failed with.
  virtual void wait() = 0;
  // Makes room for kernels that need this much scratch, so that no later call has to.
  virtual void reserve_workspace(std::size_t bytes) = 0;

  // Calls launched from now on carry this tag ("forward", "backward", "optimizer", ...); the text
  // must outlive them.
  void set_tag(std::string_view tag) { tag_ = tag; }
  [[nodiscard]] std::string_view tag() const { return tag_; }
  // Calls launched from now on belong to this layer of a model; -1: to none.
  void set_layer(int layer) { layer_ = layer; }
  [[nodiscard]] int layer() const { return layer_; }
  // Of what has been executed since the last reset. `overflowing` is the sticky flag of a device
  // that saturates.
  [[nodiscard]] const OpCounts& counts() const { return counts_; }
  void reset_counts() { counts_ = {}; }
  // Null: nobody is told. Not owned.
  void set_recorder(OpRecorder* recorder) { recorder_ = recorder; }

 protected:
  // Runs the call now, on this thread, settles its f16 results, counts it and tells the recorder.
  void execute(const OpCall& call, KernelContext& context);

 private:
  std::string_view tag_;
  int layer_ = -1;
  OpCounts counts_;
  OpRecorder* recorder_ = nullptr;
};

// Calls launched while it lives belong to the layer.
class LayerScope {
 public:
  LayerScope(Lane& lane, int layer) : lane_(lane) { lane_.set_layer(layer); }
  ~LayerScope() { lane_.set_layer(-1); }
  LayerScope(const LayerScope&) = delete;
  LayerScope& operator=(const LayerScope&) = delete;

 private:
  Lane& lane_;
};

// Device memory; freed on destruction. The address is meaningful to kernels only.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  virtual ~DeviceMemory() = default;
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  [[nodiscard]] virtual void* address() const = 0;
  [[nodiscard]] virtual std::size_t bytes() const = 0;
};

class Device {
 public:
  Device() = default;
  virtual ~Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  [[nodiscard]] virtual std::string_view name() const = 0;
  // Zero-filled, aligned to at least 128 bytes. Throws Error(capacity) naming what was asked for.
  virtual std::unique_ptr<DeviceMemory> allocate(std::size_t bytes, std::string_view purpose) = 0;
  virtual std::unique_ptr<Lane> create_lane() = 0;
  [[nodiscard]] virtual const KernelTable& kernels() const = 0;

  // What its f16 arithmetic does on overflow.
  [[nodiscard]] Overflow overflow() const { return overflow_; }
  void set_overflow(Overflow overflow) { overflow_ = overflow; }

  // Which candidate runs which matrix product; filled by measurement or from a plan.
  [[nodiscard]] MatmulChoices& matmul_choices() { return matmul_choices_; }
  [[nodiscard]] const MatmulChoices& matmul_choices() const { return matmul_choices_; }

 private:
  Overflow overflow_ = Overflow::infinity;
  MatmulChoices matmul_choices_;
};

// "cpu", "reference", "guard"; anything else is Error(usage) with the valid names.
std::unique_ptr<Device> make_device(std::string_view name);

// The candidate that will run this call: the measured choice for matrix products where there is
// one, else the first that does not decline. Throws Error(failure) when all decline.
template <class Args>
const Candidate<Args>& select_kernel(const Device& device, const Args& args);

template <class Args>
void launch(Lane& lane, const Args& args) {
  args.check();
  OpCall call = make_call(args, select_kernel(lane.device(), args));
  call.tag = lane.tag();
  call.layer = lane.layer();
  lane.submit(call);
}

namespace detail {
[[noreturn]] void fail_all_declined(std::string_view op, std::string_view device,
                                    std::string_view last_reason);
void log_declined(std::string_view op, std::string_view kernel, std::string_view reason);
}  // namespace detail

template <class Args>
const Candidate<Args>& select_kernel(const Device& device, const Args& args) {
  const auto& candidates = std::get<Candidates<Args>>(device.kernels().candidates);
  if constexpr (std::is_same_v<Args, MatmulArgs>) {
    const std::string_view chosen = device.matmul_choices().find(MatmulKey::of(args));
    if (!chosen.empty()) {
      for (const auto& candidate : candidates) {
        if (candidate.name != chosen) continue;
        if (candidate.declines == nullptr || candidate.declines(args) == nullptr) return candidate;
      }
    }
  }
  const char* reason = "no candidates";
  for (const auto& candidate : candidates) {
    reason = candidate.declines != nullptr ? candidate.declines(args) : nullptr;
    if (reason == nullptr) return candidate;
    detail::log_declined(Args::kName, candidate.name, reason);
  }
  detail::fail_all_declined(Args::kName, device.name(), reason);
}

}  // namespace belay
