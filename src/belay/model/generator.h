#pragma once
// Continues sequences token by token, with cached keys and values.

#include <memory>
#include <vector>

#include "belay/model/kv_cache.h"
#include "belay/model/sampler.h"
#include "belay/model/transformer.h"

namespace belay {

// The token that a sequence goes on with.
struct NextToken {
  std::int64_t sequence = 0;
  std::int32_t token = 0;
};

class Generator {
 public:
  static constexpr std::int64_t kMaxSequences = 128;

  // `cache`: how many sequences, at most kMaxSequences, and room for how many tokens of each,
  // prompt included; at most config.seq_len. `store` must be filled.
  Generator(Device& device, const ModelConfig& config, const ParameterStore& store,
            KvCacheConfig cache);

  [[nodiscard]] const KvCache& cache() const { return cache_; }
  [[nodiscard]] std::int64_t sequences() const { return device_logits_.dim(0); }
  [[nodiscard]] std::int64_t length(std::int64_t sequence = 0) const {
    return cache_.length(sequence);
  }

  // Appends tokens to a sequence and returns the logits [vocab] behind the last one; valid until
  // the next call. Error(usage) when there are more than a sequence may have, Error(capacity) when
  // the cache has no room left; the sequences of the call must be reset then.
  std::span<const float> feed(std::span<const std::int32_t> tokens, std::int64_t sequence = 0);
  // Appends one token to each of several sequences, all different, in one pass, and returns the
  // logits [next.size(), vocab] behind them. Errors as feed.
  std::span<const float> step(std::span<const NextToken> next);
  // Forgets everything that was fed to the sequence.
  void reset(std::int64_t sequence = 0);

 private:
  static constexpr std::int64_t kChunk = 128;  // tokens of a prompt that go through at once

  // Staged on the host, then copied to the device.
  struct Input {
    std::vector<std::int32_t> host;
    void* device = nullptr;
  };

  void check_room(std::int64_t sequence, std::int64_t count) const;
  // Notes token `slot` of the pass, the next of its sequence, which must have room for it.
  void stage_token(std::size_t slot, const NextToken& next, std::int64_t position);
  // Notes row `row` of the pass: what its tokens see.
  void stage_sequence(std::int64_t row, std::int64_t sequence, std::int64_t table_width);
  [[nodiscard]] Tensor upload(const Input& input, const Shape& shape) const;
  // Runs what is staged: `rows` sequences with `seq_len` new tokens each.
  void run(std::int64_t rows, std::int64_t seq_len, std::int64_t longest, std::int64_t table_width);
  std::span<const float> read_logits(std::int64_t rows);

  const ParameterStore& store_;
  std::int64_t vocab_;
  std::unique_ptr<Lane> lane_;
  Transformer model_;
  KvCache cache_;
  std::unique_ptr<DeviceMemory> memory_;
  Arena saved_;
  Arena scratch_;
  Input tokens_, positions_, rows_, lengths_, table_;
  Tensor device_logits_;  // [sequences, vocab]
  std::vector<float> logits_;
};

}  // namespace belay
