#pragma once
// Device memory behind the parameter table: f32 masters, and where wanted gradients, AdamW moments
// and low-precision copies. Each is one block; parameter i sits at table[i].offset in all of them.

#include <memory>
#include <span>

#include "belay/device/device.h"
#include "belay/model/parameter_table.h"

namespace belay {

struct StoreOptions {
  DType compute = DType::f32;  // f32, bf16 or f16
  bool train = true;           // gradients and moments
};

class ParameterStore {
 public:
  // Memory is zero. `table` must outlive the store.
  ParameterStore(Device& device, const ParameterTable& table, const StoreOptions& options);

  [[nodiscard]] const ParameterTable& table() const { return table_; }
  [[nodiscard]] DType compute() const { return options_.compute; }

  // What layers multiply with: the low-precision copy where there is one, else the master.
  [[nodiscard]] Tensor weight(int index) const;
  [[nodiscard]] Tensor master(int index) const { return view(masters_, DType::f32, index); }
  [[nodiscard]] Tensor grad(int index) const { return view(grads_, DType::f32, index); }
  [[nodiscard]] Tensor m(int index) const { return view(m_, DType::f32, index); }
  [[nodiscard]] Tensor v(int index) const { return view(v_, DType::f32, index); }
  // The low-precision copy; empty when the parameter has none.
  [[nodiscard]] Tensor copy(int index) const;

  // Draws initial weights as a function of (seed, parameter, element) and fills the copies.
  void initialise(Lane& lane, std::uint64_t seed) const;
  // Host values into a master (copies follow with refresh_copies).
  static void write(Lane& lane, const Tensor& device_tensor, std::span<const float> host);
  static void read(Lane& lane, const Tensor& device_tensor, std::span<float> host);
  // Rounds the masters into the low-precision copies.
  void refresh_copies(Lane& lane) const;

  // Bytes by class, for the memory plan.
  struct Bytes {
    std::size_t masters = 0, grads = 0, moments = 0, copies = 0;
  };
  static Bytes bytes(const ParameterTable& table, const StoreOptions& options);

 private:
  [[nodiscard]] Tensor view(const std::unique_ptr<DeviceMemory>& block, DType dtype,
                            int index) const;

  const ParameterTable& table_;
  StoreOptions options_;
  std::unique_ptr<DeviceMemory> masters_;
  std::unique_ptr<DeviceMemory> grads_;
  std::unique_ptr<DeviceMemory> m_;
  std::unique_ptr<DeviceMemory> v_;
  std::unique_ptr<DeviceMemory> copies_;
};

}  // namespace belay
