#include "belay/model/kv_cache.h"

#include "belay/base/arena.h"
#include "belay/base/error.h"

namespace belay {
namespace {

std::size_t padded(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

KvCache::KvCache(Device& device, const ModelConfig& model, DType dtype, const KvCacheConfig& config)
    : blocks_(config),
      group_(model.heads / model.kv_heads),
      lengths_(static_cast<std::size_t>(config.sequences)) {
  const std::int64_t width = 2 * model.kv_heads * model.head_dim;
  bytes_per_token_ = static_cast<std::size_t>(model.layers * width) * size_of(dtype);
  const Shape shape{blocks_.pool_rows(), width};
  const std::size_t layer_bytes =
      padded(static_cast<std::size_t>(shape.elements()) * size_of(dtype));
  memory_ = device.allocate(static_cast<std::size_t>(model.layers) * layer_bytes,
                            "cached keys and values");
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    auto* base = static_cast<std::byte*>(memory_->address());
    pools_.push_back({base + static_cast<std::size_t>(layer) * layer_bytes, dtype, shape});
  }
}

void KvCache::append(std::int64_t sequence, std::int64_t count) {
  const std::int64_t tokens = length(sequence) + count;
  const std::int64_t missing = blocks_.missing(sequence, tokens);
  if (missing > 0) {
    const std::int64_t rows = missing * blocks_.block_tokens();
    fail(ExitCode::capacity,
         "cached keys and values: the pool of {} tokens has {} in use, and a sequence of {} needs "
         "{} more than are left ({} bytes); make the pool larger or continue fewer sequences at "
         "once",
         blocks_.pool_rows(), blocks_.used() * blocks_.block_tokens(), tokens, rows,
         static_cast<std::size_t>(rows) * bytes_per_token_);
  }
  blocks_.extend(sequence, tokens);
  lengths_[static_cast<std::size_t>(sequence)] = tokens;
}

void KvCache::reset(std::int64_t sequence) {
  blocks_.release(sequence);
  lengths_.at(static_cast<std::size_t>(sequence)) = 0;
}

std::size_t KvCache::reserved_bytes() const {
  return static_cast<std::size_t>(blocks_.pool_rows()) * bytes_per_token_;
}

std::size_t KvCache::peak_bytes() const {
  return static_cast<std::size_t>(blocks_.peak() * blocks_.block_tokens()) * bytes_per_token_;
}

std::size_t KvCache::ungrouped(std::size_t bytes) const {
  return bytes * static_cast<std::size_t>(group_);
}

}  // namespace belay
