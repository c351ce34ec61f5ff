#pragma once
// Device memory behind the parameter table: f32 masters, and where wanted gradients, AdamW moments
// and low-precision copies. Each is one block; parameter i sits at table[i].offset in all of them.
//
// Of a state that is sharded over ranks (shard_map.h) this rank keeps its shard: elements of it are
// reached by runs. Whole tensors are there of what the layers use:
//   stage      masters, f32 run   masters, 16 bits   copies   gradients   moments
//   moments    whole              shard              whole    whole       shard
//   gradients  whole              shard              whole    pool+shard  shard
//   weights    pool+shard         shard              pool+s.  pool+shard  shard
// "pool" is memory for the parameters in use (parameter_pool.h). In 16-bit runs the parameters that
// layers use in f32, the norms, are whole on every rank.

#include <functional>
#include <memory>
#include <span>

#include "belay/device/device.h"
#include "belay/model/parameter_pool.h"
#include "belay/model/parameter_table.h"
#include "belay/model/shard_map.h"

namespace belay {

struct StoreOptions {
  DType compute = DType::f32;  // f32, bf16 or f16
  bool train = true;           // gradients and moments
  ShardOptions shard{};
};

class ParameterStore {
 public:
  // Memory is zero. `table` must outlive the store.
  ParameterStore(Device& device, const ParameterTable& table, const StoreOptions& options);

  [[nodiscard]] const ParameterTable& table() const { return table_; }
  [[nodiscard]] DType compute() const { return options_.compute; }
  [[nodiscard]] const ShardMap& shards() const { return map_; }
  [[nodiscard]] const ParameterPool& pool() const { return pool_; }
  [[nodiscard]] ZeroStage stage() const { return options_.shard.stage; }
  // What this rank's gradients are sums of when a step has been exchanged: its runs.
  [[nodiscard]] std::vector<Tensor> owned_gradients() const;

  // What layers multiply with: the low-precision copy where there is one, else the master.
  [[nodiscard]] Tensor weight(int index) const;
  [[nodiscard]] Tensor grad(int index) const;
  enum class State : std::uint8_t { masters, m, v };
  // Whether every rank holds all of it.
  [[nodiscard]] bool is_whole(State state, int index) const;
  // Of such a state.
  [[nodiscard]] Tensor whole(State state, int index) const;
  [[nodiscard]] Tensor master(int index) const { return whole(State::masters, index); }
  [[nodiscard]] Tensor m(int index) const { return whole(State::m, index); }
  [[nodiscard]] Tensor v(int index) const { return whole(State::v, index); }
  // The low-precision copy; empty when the parameter has none.
  [[nodiscard]] Tensor copy(int index) const;

  // What this rank owns of a parameter's state, [count] each.
  [[nodiscard]] Tensor owned(State state, const ShardRun& run) const;
  [[nodiscard]] Tensor owned_grad(const ShardRun& run) const;
  // Empty when the parameter has no low-precision copy.
  [[nodiscard]] Tensor owned_copy(const ShardRun& run) const;
  // This rank's block of a group: of its gradient, and of the weights that layers use (in the
  // compute dtype; the norms' part of 16-bit runs is without meaning).
  [[nodiscard]] Tensor grad_block(const ShardGroup& group) const;
  [[nodiscard]] Tensor weight_block(const ShardGroup& group) const;
  // The whole group among the weights that layers use.
  [[nodiscard]] Tensor weight_group(const ShardGroup& group) const;
  // The parameters of 16-bit runs that layers use in f32, where masters are sharded; else empty.
  [[nodiscard]] Tensor vectors() const;
  // Place of such a parameter's run among them.
  [[nodiscard]] std::int64_t vector_place(const ShardRun& run) const;
  // Memory that holds gradients, each once.
  void each_gradient(const std::function<void(const Tensor&)>& visit) const;

  // Draws initial weights as a function of (seed, parameter, element) and fills the copies. Of a
  // sharded state this rank's part (the whole weights that layers use must be gathered then).
  void initialise(Lane& lane, std::uint64_t seed) const;
  // Host values of a whole parameter into this rank's part of its state (copies follow with
  // refresh_copies).
  void load(Lane& lane, State state, int index, std::span<const float> host) const;
  // Host values into a tensor.
  static void write(Lane& lane, const Tensor& device_tensor, std::span<const float> host);
  static void read(Lane& lane, const Tensor& device_tensor, std::span<float> host);
  // Rounds the masters into the low-precision copies, as far as this rank owns them.
  void refresh_copies(Lane& lane) const;

  // Bytes by class, for the memory plan.
  struct Bytes {
    std::size_t masters = 0, grads = 0, moments = 0, copies = 0;
    std::size_t gathered = 0;  // room for the weights in use
    std::size_t vectors = 0;   // of the masters: those that are whole though others are not
  };
  static Bytes bytes(const ParameterTable& table, const StoreOptions& options);

 private:
  // Elements of one parameter, from `first` on.
  void load_part(Lane& lane, State state, int index, std::int64_t first,
                 std::span<const float> host) const;

  const ParameterTable& table_;
  StoreOptions options_;
  ShardMap map_;
  ParameterPool pool_;
  std::vector<std::int64_t> vector_places_;  // by parameter; -1: not among the vectors
  std::unique_ptr<DeviceMemory> masters_;
  std::unique_ptr<DeviceMemory> vectors_;
  std::unique_ptr<DeviceMemory> grads_;
  std::unique_ptr<DeviceMemory> grad_pool_;
  std::unique_ptr<DeviceMemory> m_;
  std::unique_ptr<DeviceMemory> v_;
  std::unique_ptr<DeviceMemory> copies_;
  std::unique_ptr<DeviceMemory> weight_pool_;
};

}  // namespace belay
