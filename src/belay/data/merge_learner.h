#pragma once
// Learns byte-pair merges from counted words (Sennrich et al., ACL 2016): again and again the most
// frequent adjacent pair becomes a symbol; among equals the pair of smaller ids. Counts are kept up
// to date word by word, and the best pair comes from a heap whose entries are checked when popped.

#include <cstdint>
#include <queue>
#include <string>
#include <unordered_map>
#include <vector>

#include "belay/data/word_counter.h"

namespace belay::data {

class MergeLearner {
 public:
  // Symbols 0..255 are the bytes; each merge adds the next one.
  explicit MergeLearner(const std::vector<WordCounter::Word>& words);

  struct Pair {
    std::uint32_t left;
    std::uint32_t right;
    friend bool operator==(const Pair&, const Pair&) = default;
  };

  // Up to `most` merges; fewer when no pair is left that occurs twice. Pairs whose text is in
  // `forbidden`, or longer than kLongestToken bytes, are passed over.
  std::vector<Pair> learn(std::size_t most, const std::vector<std::string>& forbidden);
  // Bytes of each symbol.
  [[nodiscard]] const std::vector<std::string>& symbols() const { return text_; }

  static constexpr std::size_t kLongestToken = 64;

 private:
  struct PairState {
    std::int64_t count = 0;
    std::vector<std::uint32_t> where;  // words that hold it, or held it once
  };
  struct PairHash {
    std::size_t operator()(const Pair& pair) const {
      const std::uint64_t key = std::uint64_t{pair.left} << 32 | pair.right;
      return static_cast<std::size_t>((key ^ key >> 29) * 0x9E3779B97F4A7C15U >> 20);
    }
  };
  struct Candidate {
    std::int64_t count;
    Pair pair;
    // Greatest first: higher count, then smaller ids.
    friend bool operator<(const Candidate& a, const Candidate& b) {
      if (a.count != b.count) return a.count < b.count;
      if (a.pair.left != b.pair.left) return a.pair.left > b.pair.left;
      return a.pair.right > b.pair.right;
    }
  };

  void count_bytes();
  void merge_in_word(std::uint32_t word, Pair pair, std::uint32_t merged);

  std::vector<std::uint32_t> symbols_;  // of all words, one after the other
  std::vector<std::uint32_t> begin_;    // per word, into symbols_
  std::vector<std::uint32_t> length_;
  std::vector<std::int64_t> count_;
  std::vector<std::string> text_;
  std::unordered_map<Pair, PairState, PairHash> pairs_;
  std::vector<Pair> fresh_;  // pairs that the merge in progress brought into being
  std::priority_queue<Candidate> heap_;
};

}  // namespace belay::data
