#pragma once
// The merge table of byte-pair encoding, and its use: repeatedly the adjacent pair of least rank,
// the leftmost among equals (Sennrich et al., "Neural Machine Translation of Rare Words with
// Subword Units", ACL 2016). Short words take repeated linear scans, long ones a heap: O(n log n).

#include <cstdint>
#include <optional>
#include <vector>

namespace belay::data {

// Working memory of one thread; grows to the longest word seen and is reused.
struct MergeScratch {
  struct Candidate {
    std::int32_t rank;
    std::uint32_t position;
    std::int32_t left;
    std::int32_t right;
  };
  std::vector<std::int32_t> ranks;
  std::vector<Candidate> heap;
  std::vector<std::uint32_t> next;
  std::vector<std::uint32_t> previous;
};

class MergeTable {
 public:
  struct Merge {
    std::int32_t left;
    std::int32_t right;
    std::int32_t result;
  };

  // The rank of a merge is its index. A pair that occurs twice keeps its later rank.
  explicit MergeTable(std::vector<Merge> merges);

  static constexpr std::int32_t kNoRank = 0x7FFFFFFF;

  // Rank of the pair or kNoRank.
  [[nodiscard]] std::int32_t rank(std::int32_t left, std::int32_t right) const {
    const auto left_index = static_cast<std::uint32_t>(left);
    const auto right_index = static_cast<std::uint32_t>(right);
    if ((left_index | right_index) < kSmall) return small_[left_index * kSmall + right_index];
    const std::uint64_t hash = hash_of(left_index, right_index);
    const auto tag = static_cast<std::uint32_t>(hash) & ~rank_mask_;
    for (std::size_t slot = hash >> shift_;; slot = (slot + 1) & mask_) {
      const std::uint32_t value = slots_[slot];
      if (value == kEmpty) return kNoRank;
      if ((value & ~rank_mask_) != tag) continue;
      const std::uint32_t found = value & rank_mask_;
      if (merges_[found].left == left && merges_[found].right == right) {
        return static_cast<std::int32_t>(found);
      }
    }
  }

  // Merges the symbols in place until no pair is in the table.
  void apply(std::vector<std::int32_t>& symbols, MergeScratch& scratch) const;

 private:
  // Pairs of ids below this, bytes as a rule, have a table of their own: words begin as bytes.
  static constexpr std::uint32_t kSmall = 256;
  static constexpr std::uint32_t kEmpty = 0xFFFFFFFFU;

  // Multiplicative hashing. The upper bits of the product choose the slot, lower ones are the tag.
  static std::uint64_t hash_of(std::uint32_t left, std::uint32_t right) {
    const std::uint64_t key = std::uint64_t{left} << 32 | right;
    const std::uint64_t mixed = key * 0x9E3779B97F4A7C15U;
    return (mixed ^ mixed >> 32) * 0xD6E8FEB86659FD93U;
  }
  void apply_short(std::vector<std::int32_t>& symbols, MergeScratch& scratch) const;
  void apply_long(std::vector<std::int32_t>& symbols, MergeScratch& scratch) const;

  std::vector<Merge> merges_;
  // Open addressing. A slot holds a rank below rank_mask_ and above it a few bits of the hash,
  // which turn most of the absent pairs away without a look at merges_; small, so that it stays in
  // cache.
  std::vector<std::uint32_t> slots_;
  std::vector<std::int32_t> small_;
  std::uint32_t rank_mask_ = 0;
  std::size_t mask_ = 0;
  int shift_ = 0;
};

}  // namespace belay::data
