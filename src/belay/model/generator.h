#pragma once
// Continues a sequence token by token, with cached keys and values.

#include <functional>
#include <memory>
#include <vector>

#include "belay/model/sampler.h"
#include "belay/model/transformer.h"

namespace belay {

class Generator {
 public:
  // Room for `max_tokens` tokens, prompt included; at most config.seq_len. `store` must be filled.
  Generator(Device& device, const ModelConfig& config, const ParameterStore& store,
            std::int64_t max_tokens);

  // Bytes of cached keys and values.
  [[nodiscard]] std::size_t cache_bytes() const { return cache_memory_->bytes(); }
  [[nodiscard]] std::int64_t length() const { return length_; }

  // Appends tokens and returns the logits [vocab] behind the last one; valid until the next call.
  // Error(usage) when they do not fit.
  std::span<const float> feed(std::span<const std::int32_t> tokens);
  // Forgets everything that was fed.
  void reset();

 private:
  static constexpr std::int64_t kChunk = 128;  // tokens of a prompt that go through at once

  void feed_chunk(std::span<const std::int32_t> tokens);

  const ParameterStore& store_;
  std::int64_t max_tokens_;
  std::unique_ptr<Lane> lane_;
  Transformer model_;
  std::unique_ptr<DeviceMemory> cache_memory_;
  std::unique_ptr<DeviceMemory> memory_;
  Arena saved_;
  Arena scratch_;
  std::vector<KvCache> caches_;
  PassInputs inputs_;
  Tensor device_logits_;
  std::vector<float> logits_;
  std::vector<std::int32_t> positions_;
  std::int64_t length_ = 0;
};

}  // namespace belay
