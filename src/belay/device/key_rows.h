#pragma once
// Where the keys (and values) of one batch row lie in memory that attention reads: row after row,
// or in blocks that a table names. For kernels on the host.

#include <algorithm>
#include <cstdint>

#include "belay/device/ops/attention.h"

namespace belay {

class KeyRows {
 public:
  KeyRows(const AttentionForwardArgs& args, std::int64_t batch)
      : count_(args.kv_lengths.empty() ? args.shape.kv_len
                                       : args.kv_lengths.as<std::int32_t>()[batch]),
        first_(batch * args.shape.kv_len),
        block_tokens_(args.block_tokens) {
    if (args.block_table.empty()) return;
    blocks_ = args.block_table.as<std::int32_t>() + batch * args.block_table.dim(1);
  }

  // Keys of this batch row.
  [[nodiscard]] std::int64_t count() const { return count_; }
  // The row of k and v that holds key j.
  [[nodiscard]] std::int64_t row(std::int64_t key) const {
    if (blocks_ == nullptr) return first_ + key;
    return std::int64_t{blocks_[key / block_tokens_]} * block_tokens_ + key % block_tokens_;
  }
  // Keys [begin, begin + count) in runs that lie row after row: visit(keys before it, its first
  // row, its length).
  template <class Visit>
  void for_each_run(std::int64_t begin, std::int64_t count, Visit&& visit) const {
    for (std::int64_t done = 0; done < count;) {
      const std::int64_t key = begin + done;
      const std::int64_t left = blocks_ == nullptr ? count : block_tokens_ - key % block_tokens_;
      const std::int64_t run = std::min(count - done, left);
      visit(done, row(key), run);
      done += run;
    }
  }

 private:
  std::int64_t count_;
  std::int64_t first_;
  std::int64_t block_tokens_;
  const std::int32_t* blocks_ = nullptr;
};

}  // namespace belay
