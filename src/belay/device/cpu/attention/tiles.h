#pragma once
// How attention is cut into tiles, whatever the instruction set. A query tile is kTile queries of
// one head; its keys are visited in tiles of at most kTile, or of kStep along the diagonal, so that
// little is computed in vain. Tiles depend on shapes and documents only, never on threads.
//
// Inside a tile everything is stored with the queries along the vector lanes (scores are
// [key][query]): row maxima and sums need no shuffles, and k and v are read as scalars.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "belay/device/ops/attention.h"

namespace belay::attention {

inline constexpr std::int64_t kTile = 64;
inline constexpr std::int64_t kStep = 16;  // also the granularity of query columns
inline constexpr std::int64_t kMaxHeadDim = 256;

// Head dimension padded so that rows of scratch hold whole vectors.
constexpr std::int64_t padded(std::int64_t head_dim) {
  return (head_dim + kStep - 1) / kStep * kStep;
}

// Keys [begin, begin + count) against the query columns [first, last) of a tile.
struct KeyTile {
  std::int64_t begin = 0;
  std::int64_t count = 0;
  std::int64_t first = 0;
  std::int64_t last = 0;
  bool masked = false;  // some of these pairs are invisible
};

// The queries of one tile and what they see. Columns beyond `count` repeat the last query.
struct QueryTile {
  std::int64_t first = 0;  // query within the row
  std::int64_t count = 0;
  alignas(64) std::array<std::int32_t, kTile> begin;  // first visible key of each query
  alignas(64) std::array<std::int32_t, kTile> last;   // last visible key

  // `kv_len`: keys of this batch row.
  QueryTile(const AttentionShape& shape, const Tensor& doc_begin, std::int64_t batch,
            std::int64_t tile, std::int64_t kv_len) {
    first = tile * kTile;
    count = std::min(kTile, shape.q_len - first);
    const std::int32_t* documents =
        doc_begin.empty() ? nullptr : doc_begin.as<std::int32_t>() + batch * shape.q_len + first;
    for (std::int64_t i = 0; i < kTile; ++i) {
      const std::int64_t query = std::min(i, count - 1);
      const auto at = static_cast<std::size_t>(i);
      begin[at] = documents == nullptr ? 0 : documents[query];
      last[at] = static_cast<std::int32_t>(kv_len - shape.q_len + first + query);
    }
    begin_min_ = *std::min_element(begin.begin(), begin.end());
    begin_max_ = *std::max_element(begin.begin(), begin.end());
  }

  [[nodiscard]] std::int64_t columns() const { return (count + kStep - 1) / kStep * kStep; }

  // Calls visit(KeyTile) for every key tile with a visible pair, in order of keys.
  template <class Visit>
  void for_each_key_tile(Visit&& visit) const {
    const std::int64_t first_last = last.front();
    const std::int64_t end = last.back() + 1;
    for (std::int64_t key = begin_min_; key < end;) {
      KeyTile tile;
      tile.begin = key;
      // Whole steps of keys that all queries may see go together; one more step begins with the
      // rest of those, so that no tile is thin.
      const std::int64_t seen = (first_last + 1 - key) / kStep * kStep;
      tile.count = seen >= kStep ? std::min(kTile, seen) : std::min(kStep, end - key);
      tile.masked = key < begin_max_ || key + tile.count - 1 > first_last;
      find_columns(tile);
      if (tile.first < tile.last) visit(tile);
      key += tile.count;
    }
  }

 private:
  void find_columns(KeyTile& tile) const {
    tile.last = columns();
    if (!tile.masked) return;
    const auto visible = [&](std::int64_t group) {
      for (std::int64_t i = group; i < group + kStep; ++i) {
        const auto at = static_cast<std::size_t>(i);
        if (begin[at] < tile.begin + tile.count && last[at] >= tile.begin) return true;
      }
      return false;
    };
    while (tile.first < tile.last && !visible(tile.first)) tile.first += kStep;
    while (tile.first < tile.last && !visible(tile.last - kStep)) tile.last -= kStep;
  }

  std::int64_t begin_min_ = 0;
  std::int64_t begin_max_ = 0;
};

}  // namespace belay::attention
