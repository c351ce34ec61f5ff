#include "belay/model/kv_blocks.h"

#include <algorithm>

#include "belay/base/check.h"
#include "belay/base/error.h"

namespace belay {
namespace {

constexpr std::int64_t kMostRows = std::int64_t{1} << 30;  // rows of a pool are counted in 32 bits

void check_range(std::string_view what, std::int64_t value) {
  if (value >= 1 && value <= kMostRows) return;
  fail(ExitCode::usage, "{} of cached keys and values: {} is not between 1 and {}", what, value,
       kMostRows);
}

std::int64_t pool_blocks_of(const KvCacheConfig& config, std::int64_t block_tokens) {
  if (config.storage == KvStorage::contiguous) return config.sequences;
  const std::int64_t each = (config.max_tokens + block_tokens - 1) / block_tokens;
  if (config.pool_tokens == 0) return config.sequences * each;
  return std::max<std::int64_t>(1, config.pool_tokens / block_tokens);
}

}  // namespace

std::string_view name_of(KvStorage storage) {
  return storage == KvStorage::paged ? "paged" : "contiguous";
}

KvStorage parse_kv_storage(std::string_view name) {
  for (const KvStorage storage : {KvStorage::paged, KvStorage::contiguous}) {
    if (name == name_of(storage)) return storage;
  }
  fail(ExitCode::usage, "no storage '{}' of keys and values; choose paged or contiguous", name);
}

KvBlocks::KvBlocks(const KvCacheConfig& config)
    : block_tokens_(config.storage == KvStorage::contiguous ? config.max_tokens
                                                            : config.block_tokens),
      max_tokens_(config.max_tokens),
      pool_blocks_(0) {
  check_range("tokens per block", block_tokens_);
  check_range("tokens per sequence", config.max_tokens);
  check_range("sequences", config.sequences);
  pool_blocks_ = pool_blocks_of(config, block_tokens_);
  check_range("tokens", pool_blocks_ * block_tokens_);
  for (std::int64_t block = pool_blocks_; block-- > 0;) {
    free_.push_back(static_cast<std::int32_t>(block));
  }
  sequences_.resize(static_cast<std::size_t>(config.sequences));
  for (std::vector<std::int32_t>& blocks : sequences_) {
    blocks.reserve(static_cast<std::size_t>(blocks_for(max_tokens_)));
  }
}

std::int64_t KvBlocks::missing(std::int64_t sequence, std::int64_t tokens) const {
  const auto have = static_cast<std::int64_t>(blocks(sequence).size());
  const std::int64_t wanted = blocks_for(tokens) - have;
  return std::max<std::int64_t>(0, wanted - (pool_blocks_ - used_));
}

void KvBlocks::extend(std::int64_t sequence, std::int64_t tokens) {
  BELAY_CHECK(tokens <= max_tokens_ && missing(sequence, tokens) == 0);
  std::vector<std::int32_t>& blocks = sequences_.at(static_cast<std::size_t>(sequence));
  while (static_cast<std::int64_t>(blocks.size()) < blocks_for(tokens)) {
    blocks.push_back(free_.back());
    free_.pop_back();
    ++used_;
  }
  peak_ = std::max(peak_, used_);
}

void KvBlocks::release(std::int64_t sequence) {
  std::vector<std::int32_t>& blocks = sequences_.at(static_cast<std::size_t>(sequence));
  used_ -= static_cast<std::int64_t>(blocks.size());
  for (; !blocks.empty(); blocks.pop_back()) free_.push_back(blocks.back());
}

std::span<const std::int32_t> KvBlocks::blocks(std::int64_t sequence) const {
  return sequences_.at(static_cast<std::size_t>(sequence));
}

std::int32_t KvBlocks::row(std::int64_t sequence, std::int64_t position) const {
  const auto block = static_cast<std::size_t>(position / block_tokens_);
  return static_cast<std::int32_t>(blocks(sequence)[block] * block_tokens_ +
                                   position % block_tokens_);
}

}  // namespace belay
