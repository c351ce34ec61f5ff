#include "belay/data/bpe_merges.h"

#include <algorithm>
#include <bit>

namespace belay::data {
namespace {

// Up to this many symbols the scans beat the heap.
constexpr std::size_t kLongestScanned = 256;

// Min-heap by rank, then position.
bool comes_later(const MergeScratch::Candidate& a, const MergeScratch::Candidate& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.position > b.position;
}

// Index of the first least element. The minimum is found on its own because that loop vectorises.
std::size_t first_least(const std::uint32_t* values, std::size_t count) {
  std::uint32_t least = values[0];
  for (std::size_t i = 1; i < count; ++i) least = std::min(least, values[i]);
  std::size_t index = 0;
  while (values[index] != least) ++index;
  return index;
}

}  // namespace

MergeTable::MergeTable(const std::vector<Merge>& merges) {
  const std::size_t slots = std::bit_ceil(std::max<std::size_t>(merges.size() * 2, 16));
  mask_ = slots - 1;
  shift_ = 64 - std::countr_zero(slots);
  keys_.assign(slots, kEmpty);
  ranks_.assign(slots, kNoRank);
  results_.reserve(merges.size());
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const std::uint64_t wanted = key(merges[rank].left, merges[rank].right);
    std::size_t slot = slot_of(wanted);
    while (keys_[slot] != kEmpty && keys_[slot] != wanted) slot = (slot + 1) & mask_;
    keys_[slot] = wanted;
    ranks_[slot] = static_cast<std::uint32_t>(rank);
    results_.push_back(merges[rank].result);
  }
}

void MergeTable::apply(std::vector<std::int32_t>& symbols, MergeScratch& scratch) const {
  if (symbols.size() < 2) return;
  if (symbols.size() <= kLongestScanned) {
    apply_short(symbols, scratch);
  } else {
    apply_long(symbols, scratch);
  }
}

void MergeTable::apply_short(std::vector<std::int32_t>& symbols, MergeScratch& scratch) const {
  std::size_t pairs = symbols.size() - 1;
  scratch.ranks.resize(std::max(scratch.ranks.size(), kLongestScanned));
  std::uint32_t* ranks = scratch.ranks.data();
  std::int32_t* ids = symbols.data();
  for (std::size_t i = 0; i < pairs; ++i) ranks[i] = rank(ids[i], ids[i + 1]);
  while (pairs > 0) {
    const std::size_t at = first_least(ranks, pairs);
    if (ranks[at] == kNoRank) break;
    ids[at] = results_[ranks[at]];
    std::copy(ids + at + 2, ids + pairs + 1, ids + at + 1);
    std::copy(ranks + at + 1, ranks + pairs, ranks + at);
    --pairs;
    if (at < pairs) ranks[at] = rank(ids[at], ids[at + 1]);
    if (at > 0) ranks[at - 1] = rank(ids[at - 1], ids[at]);
  }
  symbols.resize(pairs + 1);
}

void MergeTable::apply_long(std::vector<std::int32_t>& symbols, MergeScratch& scratch) const {
  constexpr std::uint32_t kEnd = 0xFFFFFFFFU;
  constexpr std::int32_t kGone = -1;
  const std::size_t count = symbols.size();
  auto& heap = scratch.heap;
  auto& next = scratch.next;
  auto& previous = scratch.previous;
  heap.clear();
  next.resize(count);
  previous.resize(count);
  const auto consider = [&](std::uint32_t position) {
    const std::int32_t left = symbols[position];
    const std::int32_t right = symbols[next[position]];
    const std::uint32_t found = rank(left, right);
    if (found == kNoRank) return false;
    heap.push_back({found, position, left, right});
    return true;
  };
  for (std::size_t i = 0; i < count; ++i) {
    next[i] = i + 1 < count ? static_cast<std::uint32_t>(i + 1) : kEnd;
    previous[i] = i > 0 ? static_cast<std::uint32_t>(i - 1) : kEnd;
  }
  for (std::uint32_t i = 0; i + 1 < count; ++i) consider(i);
  std::make_heap(heap.begin(), heap.end(), comes_later);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), comes_later);
    const MergeScratch::Candidate best = heap.back();
    heap.pop_back();
    const std::uint32_t at = best.position;
    const std::uint32_t right = next[at];
    // Stale when one of the two has been merged since.
    if (symbols[at] != best.left || right == kEnd || symbols[right] != best.right) continue;
    symbols[at] = results_[best.rank];
    symbols[right] = kGone;
    next[at] = next[right];
    if (next[at] != kEnd) {
      previous[next[at]] = at;
      if (consider(at)) std::push_heap(heap.begin(), heap.end(), comes_later);
    }
    if (previous[at] != kEnd && consider(previous[at])) {
      std::push_heap(heap.begin(), heap.end(), comes_later);
    }
  }
  std::erase(symbols, kGone);
}

}  // namespace belay::data
