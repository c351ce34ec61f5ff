#include "belay/data/merge_learner.h"

#include <algorithm>

namespace belay::data {

MergeLearner::MergeLearner(const std::vector<WordCounter::Word>& words) {
  for (int byte = 0; byte < 256; ++byte) text_.emplace_back(1, static_cast<char>(byte));
  std::size_t total = 0;
  std::size_t useful = 0;
  for (const auto& word : words) {
    if (word.text.size() < 2) continue;
    total += word.text.size();
    ++useful;
  }
  symbols_.reserve(total);
  begin_.reserve(useful);
  length_.reserve(useful);
  count_.reserve(useful);
  for (const auto& word : words) {
    if (word.text.size() < 2) continue;  // no pair in it
    begin_.push_back(static_cast<std::uint32_t>(symbols_.size()));
    length_.push_back(static_cast<std::uint32_t>(word.text.size()));
    count_.push_back(word.count);
    for (const char byte : word.text) symbols_.push_back(static_cast<unsigned char>(byte));
  }
  count_bytes();
}

// The first counts are of pairs of bytes: dense tables, and lists of exactly the right size.
void MergeLearner::count_bytes() {
  std::vector<std::int64_t> counts(65536, 0);
  std::vector<std::uint32_t> holders(65536, 0);
  std::vector<std::uint32_t> last(65536, 0xFFFFFFFFU);
  const auto each = [&](auto&& visit) {
    for (std::uint32_t word = 0; word < begin_.size(); ++word) {
      const std::uint32_t* s = symbols_.data() + begin_[word];
      for (std::uint32_t i = 0; i + 1 < length_[word]; ++i) visit(word, s[i] << 8 | s[i + 1]);
    }
  };
  each([&](std::uint32_t word, std::uint32_t pair) {
    counts[pair] += count_[word];
    if (last[pair] != word) ++holders[pair];
    last[pair] = word;
  });
  std::vector<PairState*> states(65536, nullptr);
  for (std::uint32_t pair = 0; pair < 65536; ++pair) {
    if (holders[pair] == 0) continue;
    PairState& state = pairs_[{pair >> 8, pair & 255U}];
    state.count = counts[pair];
    state.where.reserve(holders[pair]);
    states[pair] = &state;  // elements of an unordered_map stay where they are
    heap_.push({state.count, {pair >> 8, pair & 255U}});
  }
  each([&](std::uint32_t word, std::uint32_t pair) {
    auto& where = states[pair]->where;
    if (where.empty() || where.back() != word) where.push_back(word);
  });
}

std::vector<MergeLearner::Pair> MergeLearner::learn(std::size_t most,
                                                    const std::vector<std::string>& forbidden) {
  std::vector<Pair> merges;
  while (merges.size() < most && !heap_.empty()) {
    const Candidate best = heap_.top();
    heap_.pop();
    const auto found = pairs_.find(best.pair);
    if (found == pairs_.end()) continue;
    PairState& state = found->second;
    if (state.count != best.count) {  // counts only fall after a pair was pushed
      heap_.push({state.count, best.pair});
      continue;
    }
    if (best.count < 2) break;
    std::string text = text_[best.pair.left] + text_[best.pair.right];
    if (text.size() > kLongestToken ||
        std::find(forbidden.begin(), forbidden.end(), text) != forbidden.end()) {
      continue;
    }
    const std::vector<std::uint32_t> where = std::move(state.where);
    pairs_.erase(found);
    const auto merged = static_cast<std::uint32_t>(text_.size());
    text_.push_back(std::move(text));
    merges.push_back(best.pair);
    fresh_.clear();
    for (const std::uint32_t word : where) merge_in_word(word, best.pair, merged);
    for (const Pair& pair : fresh_) {
      const auto state_of = pairs_.find(pair);
      if (state_of != pairs_.end()) heap_.push({state_of->second.count, pair});
    }
  }
  return merges;
}

void MergeLearner::merge_in_word(std::uint32_t word, Pair pair, std::uint32_t merged) {
  std::uint32_t* s = symbols_.data() + begin_[word];
  const std::uint32_t length = length_[word];
  const std::int64_t count = count_[word];
  std::uint32_t kept = 0;
  bool merged_before = false;
  for (std::uint32_t i = 0; i < length;) {
    const bool match = i + 1 < length && s[i] == pair.left && s[i + 1] == pair.right;
    const std::uint32_t first = s[i];
    const std::uint32_t symbol = match ? merged : first;
    if (kept > 0 && (match || merged_before)) {
      // The pair across this border changes: the old one had the last symbol before it.
      const std::uint32_t before = merged_before ? pair.right : s[kept - 1];
      if (const auto old = pairs_.find({before, first}); old != pairs_.end()) {
        old->second.count -= count;
        if (old->second.count == 0) pairs_.erase(old);
      }
      const Pair now{s[kept - 1], symbol};
      PairState& state = pairs_[now];
      if (state.where.empty()) fresh_.push_back(now);
      if (state.where.empty() || state.where.back() != word) state.where.push_back(word);
      state.count += count;
    }
    s[kept++] = symbol;
    merged_before = match;
    i += match ? 2 : 1;
  }
  length_[word] = kept;
}

}  // namespace belay::data
