#include "belay/model/generator.h"

#include <algorithm>

#include "belay/base/error.h"

namespace belay {
namespace {

std::size_t padded(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

std::size_t cache_size(const ModelConfig& config, DType dtype, std::int64_t tokens) {
  const auto row = static_cast<std::size_t>(2 * config.kv_heads * config.head_dim);
  return static_cast<std::size_t>(config.layers) *
         padded(static_cast<std::size_t>(tokens) * row * size_of(dtype));
}

// Generous bounds for one chunk: every temporary of a layer, and the statistics of all norms.
std::size_t scratch_size(const ModelConfig& config, std::int64_t chunk) {
  const std::int64_t widths =
      12 * config.hidden + 3 * config.heads * config.head_dim + 3 * config.ffn;
  return static_cast<std::size_t>(chunk * widths) * 4 + 64 * kAlignment;
}

std::size_t saved_size(const ModelConfig& config, std::int64_t chunk) {
  const auto norms = static_cast<std::size_t>(2 * config.layers + 1);
  return norms * (padded(static_cast<std::size_t>(chunk * config.hidden) * 4) +
                  2 * padded(static_cast<std::size_t>(chunk) * 4));
}

}  // namespace

Generator::Generator(Device& device, const ModelConfig& config, const ParameterStore& store,
                     std::int64_t max_tokens)
    : store_(store),
      max_tokens_(std::min(max_tokens, config.seq_len)),
      lane_(device.create_lane()),
      model_(*lane_, config, store.table(), {}),
      cache_memory_(device.allocate(cache_size(config, store.compute(), max_tokens_),
                                    "cached keys and values")),
      logits_(static_cast<std::size_t>(config.vocab)),
      positions_(kChunk) {
  const std::size_t saved = saved_size(config, kChunk);
  const std::size_t scratch = scratch_size(config, kChunk);
  const std::size_t inputs = padded(kChunk * 4);
  const std::size_t logits = padded(static_cast<std::size_t>(config.vocab) * 4);
  memory_ = device.allocate(saved + scratch + 2 * inputs + logits, "generation");
  auto* base = static_cast<std::byte*>(memory_->address());
  saved_ = Arena("generation activations", base, saved);
  scratch_ = Arena("generation temporaries", base + saved, scratch);
  base += saved + scratch;
  inputs_.rows = 1;
  inputs_.tokens = {base, DType::i32, {kChunk}};
  inputs_.positions = {base + inputs, DType::i32, {kChunk}};
  device_logits_ = {base + 2 * inputs, DType::f32, {1, config.vocab}};
  reset();
}

void Generator::reset() {
  Arena arena("cached keys and values", cache_memory_->address(), cache_memory_->bytes());
  caches_ = model_.make_caches(arena, store_.compute(), max_tokens_);
  length_ = 0;
}

std::span<const float> Generator::feed(std::span<const std::int32_t> tokens) {
  BELAY_CHECK(!tokens.empty());
  const auto count = static_cast<std::int64_t>(tokens.size());
  if (length_ + count > max_tokens_) {
    fail(ExitCode::usage, "{} tokens do not fit: the model takes {} in all and {} are there", count,
         max_tokens_, length_);
  }
  while (!tokens.empty()) {
    const std::size_t chunk = std::min<std::size_t>(tokens.size(), kChunk);
    feed_chunk(tokens.first(chunk));
    tokens = tokens.subspan(chunk);
  }
  lane_->copy_out(logits_.data(), device_logits_.data, device_logits_.bytes());
  lane_->wait();
  return logits_;
}

void Generator::feed_chunk(std::span<const std::int32_t> tokens) {
  const auto count = static_cast<std::int64_t>(tokens.size());
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    positions_[i] = static_cast<std::int32_t>(length_ + static_cast<std::int64_t>(i));
  }
  Pass pass{*lane_, store_, saved_, scratch_, inputs_, {}, 0, false};
  pass.inputs.seq_len = count;
  pass.inputs.tokens.shape = {count};
  pass.inputs.positions.shape = {count};
  lane_->copy_in(pass.inputs.tokens.data, tokens.data(), tokens.size_bytes());
  lane_->copy_in(pass.inputs.positions.data, positions_.data(), tokens.size_bytes());
  model_.decode(pass, caches_, device_logits_);
  lane_->wait();
  length_ += count;
}

}  // namespace belay
