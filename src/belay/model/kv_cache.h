#pragma once
// Cached keys and values of the sequences that a Generator continues, on a device.

#include <memory>
#include <vector>

#include "belay/base/tensor.h"
#include "belay/device/device.h"
#include "belay/model/kv_blocks.h"
#include "belay/model/model_config.h"

namespace belay {

// What a pass that generates reads and writes of the cache, the same for every layer: in device
// memory, i32.
struct CacheAccess {
  Tensor rows;                    // [tokens]: the pool row of each new token
  Tensor block_table;             // [sequences, blocks]
  Tensor lengths;                 // [sequences]: tokens of each, the new ones included
  std::int64_t block_tokens = 0;  // of the table
  std::int64_t longest = 0;       // of the lengths
};

class KvCache {
 public:
  // Error(usage) for sizes that cannot be, Error(capacity) when the device has not the memory.
  KvCache(Device& device, const ModelConfig& model, DType dtype, const KvCacheConfig& config);

  [[nodiscard]] const KvBlocks& blocks() const { return blocks_; }
  // [pool rows, 2 * kv_heads * head_dim]: k | v.
  [[nodiscard]] const Tensor& pool(std::size_t layer) const { return pools_[layer]; }

  [[nodiscard]] std::int64_t length(std::int64_t sequence) const {
    return lengths_.at(static_cast<std::size_t>(sequence));
  }
  // Makes room for `count` more tokens of the sequence and counts them as there. Error(capacity)
  // that says how much room the pool lacks.
  void append(std::int64_t sequence, std::int64_t count);
  // Forgets the sequence.
  void reset(std::int64_t sequence);

  [[nodiscard]] std::size_t bytes_per_token() const { return bytes_per_token_; }
  [[nodiscard]] std::size_t reserved_bytes() const;
  [[nodiscard]] std::size_t peak_bytes() const;  // of the blocks in use
  // What `bytes` of cache would be if every query head had keys and values of its own.
  [[nodiscard]] std::size_t ungrouped(std::size_t bytes) const;

 private:
  KvBlocks blocks_;
  std::int64_t group_;  // query heads that share keys and values
  std::size_t bytes_per_token_;
  std::unique_ptr<DeviceMemory> memory_;
  std::vector<Tensor> pools_;
  std::vector<std::int64_t> lengths_;
};

}  // namespace belay
