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
    std::uint32_t rank;
    std::uint32_t position;
    std::int32_t left;
    std::int32_t right;
  };
  std::vector<std::uint32_t> ranks;
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
  explicit MergeTable(const std::vector<Merge>& merges);

  static constexpr std::uint32_t kNoRank = 0xFFFFFFFFU;

  // Rank of the pair or kNoRank.
  [[nodiscard]] std::uint32_t rank(std::int32_t left, std::int32_t right) const {
    const std::uint64_t wanted = key(left, right);
    for (std::size_t slot = slot_of(wanted);; slot = (slot + 1) & mask_) {
      if (keys_[slot] == wanted) return ranks_[slot];
      if (keys_[slot] == kEmpty) return kNoRank;
    }
  }
  [[nodiscard]] std::int32_t result(std::uint32_t rank) const { return results_[rank]; }

  // Merges the symbols in place until no pair is in the table.
  void apply(std::vector<std::int32_t>& symbols, MergeScratch& scratch) const;

 private:
  static constexpr std::uint64_t kEmpty = ~std::uint64_t{0};

  static std::uint64_t key(std::int32_t left, std::int32_t right) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 |
           static_cast<std::uint32_t>(right);
  }
  // Multiplicative hashing; the upper half of the product holds the well-mixed bits.
  [[nodiscard]] std::size_t slot_of(std::uint64_t key) const {
    const std::uint64_t mixed = (key ^ key >> 29) * 0x9E3779B97F4A7C15U;
    return static_cast<std::size_t>(mixed >> shift_) & mask_;
  }
  void apply_short(std::vector<std::int32_t>& symbols, MergeScratch& scratch) const;
  void apply_long(std::vector<std::int32_t>& symbols, MergeScratch& scratch) const;

  std::vector<std::uint64_t> keys_;
  std::vector<std::uint32_t> ranks_;
  std::vector<std::int32_t> results_;
  std::size_t mask_ = 0;
  int shift_ = 0;
};

}  // namespace belay::data
