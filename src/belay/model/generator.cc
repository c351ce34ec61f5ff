#include "belay/model/generator.h"

#include <algorithm>

#include "belay/base/error.h"

namespace belay {
namespace {

std::size_t padded(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// Generous bounds for one chunk: every temporary of a layer, and the statistics of all norms.
std::size_t scratch_size(const ModelConfig& config, std::int64_t chunk) {
  const std::int64_t widths =
      12 * config.hidden + 4 * config.heads * config.head_dim + 3 * config.ffn;
  return static_cast<std::size_t>(chunk * widths) * 4 + 64 * kAlignment;
}

std::size_t saved_size(const ModelConfig& config, std::int64_t chunk) {
  const auto norms = static_cast<std::size_t>(2 * config.layers + 1);
  return norms * (padded(static_cast<std::size_t>(chunk * config.hidden) * 4) +
                  2 * padded(static_cast<std::size_t>(chunk) * 4));
}

KvCacheConfig limited(KvCacheConfig cache, const ModelConfig& config) {
  if (cache.sequences > Generator::kMaxSequences) {
    fail(ExitCode::usage, "{} sequences at once are more than {}", cache.sequences,
         Generator::kMaxSequences);
  }
  cache.max_tokens = std::min(cache.max_tokens, config.seq_len);
  return cache;
}

}  // namespace

Generator::Generator(Device& device, const ModelConfig& config, const ParameterStore& store,
                     KvCacheConfig cache)
    : store_(store),
      vocab_(config.vocab),
      lane_(device.create_lane()),
      model_(*lane_, config, store.table(), {}),
      cache_(device, config, store.compute(), limited(cache, config)) {
  const KvBlocks& blocks = cache_.blocks();
  const std::int64_t table = cache.sequences * blocks.blocks_for(blocks.max_tokens());
  tokens_.host.resize(kChunk);
  positions_.host.resize(kChunk);
  rows_.host.resize(kChunk);
  lengths_.host.resize(static_cast<std::size_t>(cache.sequences));
  table_.host.resize(static_cast<std::size_t>(table));
  logits_.resize(static_cast<std::size_t>(cache.sequences * vocab_));

  const std::size_t saved = saved_size(config, kChunk);
  const std::size_t scratch = scratch_size(config, kChunk);
  std::size_t bytes = saved + scratch + padded(logits_.size() * 4);
  const std::array<Input*, 5> inputs{&tokens_, &positions_, &rows_, &lengths_, &table_};
  for (const Input* input : inputs) bytes += padded(input->host.size() * 4);
  memory_ = device.allocate(bytes, "generation");
  auto* base = static_cast<std::byte*>(memory_->address());
  saved_ = Arena("generation activations", base, saved);
  scratch_ = Arena("generation temporaries", base + saved, scratch);
  base += saved + scratch;
  for (Input* input : inputs) {
    input->device = base;
    base += padded(input->host.size() * 4);
  }
  device_logits_ = {base, DType::f32, {cache.sequences, vocab_}};
}

void Generator::reset(std::int64_t sequence) {
  cache_.reset(sequence);
}

void Generator::check_room(std::int64_t sequence, std::int64_t count) const {
  const std::int64_t most = cache_.blocks().max_tokens();
  if (length(sequence) + count <= most) return;
  fail(ExitCode::usage, "{} tokens do not fit: a sequence may have {} in all and {} are there",
       count, most, length(sequence));
}

std::span<const float> Generator::feed(std::span<const std::int32_t> tokens,
                                       std::int64_t sequence) {
  BELAY_CHECK(!tokens.empty());
  check_room(sequence, static_cast<std::int64_t>(tokens.size()));
  while (!tokens.empty()) {
    const std::size_t count = std::min<std::size_t>(tokens.size(), kChunk);
    const std::int64_t begin = length(sequence);
    cache_.append(sequence, static_cast<std::int64_t>(count));
    for (std::size_t i = 0; i < count; ++i) {
      stage_token(i, {sequence, tokens[i]}, begin + static_cast<std::int64_t>(i));
    }
    const std::int64_t width = cache_.blocks().blocks_for(length(sequence));
    stage_sequence(0, sequence, width);
    run(1, static_cast<std::int64_t>(count), length(sequence), width);
    tokens = tokens.subspan(count);
  }
  return read_logits(1);
}

std::span<const float> Generator::step(std::span<const NextToken> next) {
  BELAY_CHECK(!next.empty() && next.size() <= lengths_.host.size());
  for (const NextToken& one : next) check_room(one.sequence, 1);
  std::int64_t longest = 0;
  for (std::size_t i = 0; i < next.size(); ++i) {
    const std::int64_t position = length(next[i].sequence);
    cache_.append(next[i].sequence, 1);
    stage_token(i, next[i], position);
    longest = std::max(longest, position + 1);
  }
  const std::int64_t width = cache_.blocks().blocks_for(longest);
  const auto count = static_cast<std::int64_t>(next.size());
  for (std::int64_t i = 0; i < count; ++i) {
    stage_sequence(i, next[static_cast<std::size_t>(i)].sequence, width);
  }
  run(count, 1, longest, width);
  return read_logits(count);
}

void Generator::stage_token(std::size_t slot, const NextToken& next, std::int64_t position) {
  tokens_.host[slot] = next.token;
  positions_.host[slot] = static_cast<std::int32_t>(position);
  rows_.host[slot] = cache_.blocks().row(next.sequence, position);
}

void Generator::stage_sequence(std::int64_t row, std::int64_t sequence, std::int64_t table_width) {
  lengths_.host[static_cast<std::size_t>(row)] = static_cast<std::int32_t>(length(sequence));
  const std::span<const std::int32_t> blocks = cache_.blocks().blocks(sequence);
  std::copy(blocks.begin(), blocks.end(), table_.host.begin() + row * table_width);
}

Tensor Generator::upload(const Input& input, const Shape& shape) const {
  const Tensor tensor{input.device, DType::i32, shape};
  lane_->copy_in(tensor.data, input.host.data(), tensor.bytes());
  return tensor;
}

void Generator::run(std::int64_t rows, std::int64_t seq_len, std::int64_t longest,
                    std::int64_t table_width) {
  const std::int64_t tokens = rows * seq_len;
  PassInputs inputs;
  inputs.rows = rows;
  inputs.seq_len = seq_len;
  inputs.tokens = upload(tokens_, {tokens});
  inputs.positions = upload(positions_, {tokens});
  const CacheAccess access{upload(rows_, {tokens}), upload(table_, {rows, table_width}),
                           upload(lengths_, {rows}), cache_.blocks().block_tokens(), longest};
  const Pass pass{*lane_, store_, saved_, scratch_, inputs, {}, 0, false};
  model_.decode(pass, cache_, access, device_logits_.rows(0, rows));
  lane_->wait();
}

std::span<const float> Generator::read_logits(std::int64_t rows) {
  const Tensor logits = device_logits_.rows(0, rows);
  lane_->copy_out(logits_.data(), logits.data, logits.bytes());
  lane_->wait();
  return std::span(logits_).first(static_cast<std::size_t>(logits.elements()));
}

}  // namespace belay
