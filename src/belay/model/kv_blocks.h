#pragma once
// Which blocks of a pool of cached keys and values each sequence has: bookkeeping on the host. A
// block holds the same tokens of every layer, each layer's in a pool of its own.

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace belay {

enum class KvStorage : std::uint8_t {
  paged,       // blocks of a few tokens, given to a sequence as it grows
  contiguous,  // every sequence has one block, as long as it may become
};

std::string_view name_of(KvStorage storage);
KvStorage parse_kv_storage(std::string_view name);  // Error(usage) with the valid names

struct KvCacheConfig {
  KvStorage storage = KvStorage::paged;
  std::int64_t block_tokens = 16;  // paged only
  std::int64_t sequences = 1;      // at once
  std::int64_t max_tokens = 0;     // of one sequence
  std::int64_t pool_tokens = 0;  // paged only, all sequences together; 0: room for max_tokens each
};

class KvBlocks {
 public:
  // Error(usage) for sizes that cannot be, naming the number.
  explicit KvBlocks(const KvCacheConfig& config);

  [[nodiscard]] std::int64_t block_tokens() const { return block_tokens_; }
  [[nodiscard]] std::int64_t pool_blocks() const { return pool_blocks_; }
  [[nodiscard]] std::int64_t pool_rows() const { return pool_blocks_ * block_tokens_; }
  [[nodiscard]] std::int64_t blocks_for(std::int64_t tokens) const {
    return (tokens + block_tokens_ - 1) / block_tokens_;
  }
  [[nodiscard]] std::int64_t max_tokens() const { return max_tokens_; }

  // Blocks that the pool lacks before this sequence could hold `tokens` tokens; 0: none.
  [[nodiscard]] std::int64_t missing(std::int64_t sequence, std::int64_t tokens) const;
  // Gives the sequence the blocks for `tokens` tokens in all; none must be missing. Allocates
  // nothing on the heap.
  void extend(std::int64_t sequence, std::int64_t tokens);
  // Takes all blocks of the sequence back.
  void release(std::int64_t sequence);

  [[nodiscard]] std::span<const std::int32_t> blocks(std::int64_t sequence) const;
  // The pool row of the sequence's token at `position`.
  [[nodiscard]] std::int32_t row(std::int64_t sequence, std::int64_t position) const;
  [[nodiscard]] std::int64_t used() const { return used_; }
  [[nodiscard]] std::int64_t peak() const { return peak_; }  // of used()

 private:
  std::int64_t block_tokens_;
  std::int64_t max_tokens_;
  std::int64_t pool_blocks_;
  std::vector<std::int32_t> free_;                    // the last one goes first
  std::vector<std::vector<std::int32_t>> sequences_;  // the blocks of each, in order of tokens
  std::int64_t used_ = 0;
  std::int64_t peak_ = 0;
};

}  // namespace belay
