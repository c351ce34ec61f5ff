#include "belay/data/bpe_merges.h"

#include <algorithm>
#include <array>
#include <bit>

namespace belay::data {
namespace {

// Up to this many symbols the scans beat the heap.
constexpr std::size_t kLongestScanned = 256;  // a multiple of kLanes

// Min-heap by rank, then position.
bool comes_later(const MergeScratch::Candidate& a, const MergeScratch::Candidate& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.position > b.position;
}

// Lanes of the search for the least rank; compilers turn such a loop into vector code.
constexpr std::size_t kLanes = 16;

// Index of the first least element among `count`, a multiple of kLanes.
std::size_t first_least(const std::int32_t* values, std::size_t count) {
  std::array<std::int32_t, kLanes> least{};
  std::copy_n(values, kLanes, least.begin());
  for (std::size_t block = kLanes; block < count; block += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      least[lane] = std::min(least[lane], values[block + lane]);
    }
  }
  for (std::size_t width = kLanes / 2; width > 0; width /= 2) {
    for (std::size_t lane = 0; lane < width; ++lane) {
      least[lane] = std::min(least[lane], least[lane + width]);
    }
  }
  const std::int32_t wanted = least[0];
  std::size_t index = 0;
  while (values[index] != wanted) ++index;
  return index;
}

}  // namespace

MergeTable::MergeTable(std::vector<Merge> merges) : merges_(std::move(merges)) {
  const std::size_t slots = std::bit_ceil(std::max<std::size_t>(merges_.size() * 2, 16));
  mask_ = slots - 1;
  shift_ = 64 - std::countr_zero(slots);
  rank_mask_ = (std::uint32_t{1} << std::bit_width(merges_.size())) - 1;
  slots_.assign(slots, kEmpty);
  small_.assign(std::size_t{kSmall} * kSmall, kNoRank);
  for (std::uint32_t rank = 0; rank < merges_.size(); ++rank) {
    const auto left = static_cast<std::uint32_t>(merges_[rank].left);
    const auto right = static_cast<std::uint32_t>(merges_[rank].right);
    if ((left | right) < kSmall) small_[left * kSmall + right] = static_cast<std::int32_t>(rank);
    const std::uint64_t hash = hash_of(left, right);
    std::size_t slot = hash >> shift_;
    while (slots_[slot] != kEmpty) {
      const Merge& other = merges_[slots_[slot] & rank_mask_];
      if (other.left == merges_[rank].left && other.right == merges_[rank].right) break;
      slot = (slot + 1) & mask_;
    }
    slots_[slot] = (static_cast<std::uint32_t>(hash) & ~rank_mask_) | rank;
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
  scratch.ranks.resize(kLongestScanned);
  std::int32_t* ranks = scratch.ranks.data();
  std::int32_t* ids = symbols.data();
  for (std::size_t i = 0; i < pairs; ++i) ranks[i] = rank(ids[i], ids[i + 1]);
  // Ranks are padded to whole blocks, so that the search needs no remainder.
  std::fill(ranks + pairs, ranks + (pairs + kLanes - 1) / kLanes * kLanes, kNoRank);
  while (pairs > 0) {
    const std::size_t at = first_least(ranks, (pairs + kLanes - 1) / kLanes * kLanes);
    if (ranks[at] == kNoRank) break;
    ids[at] = merges_[static_cast<std::size_t>(ranks[at])].result;
    std::copy(ids + at + 2, ids + pairs + 1, ids + at + 1);
    std::copy(ranks + at + 1, ranks + pairs, ranks + at);
    ranks[--pairs] = kNoRank;
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
    const std::int32_t found = rank(left, right);
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
    symbols[at] = merges_[static_cast<std::size_t>(best.rank)].result;
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
