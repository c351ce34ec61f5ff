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

  QueryTile(const AttentionShape& shape, const Tensor& doc_begin, std::int64_t batch,
            std::int64_t tile) {
    first = tile * kTile;
    count = std::min(kTile, shape.q_len - first);
    const std::int32_t* documents =
        doc_begin.empty() ? nullptr : doc_begin.as<std::int32_t>() + batch * shape.q_len + first;
    for (std::int64_t i = 0; i < kTile; ++i) {
      const std::int64_t query = std::min(i, count - 1);
      const auto at = static_cast<std::size_t>(i);
      begin[at] = documents == nullptr ? 0 : documents[query];
      last[at] = static_cast<std::int32_t>(shape.kv_len - shape.q_len + first + query);
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
      tile.count =
          key <= first_last ? std::min(kTile, first_last + 1 - key) : std::min(kStep, end - key);
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

// Scratch of one thread in the forward pass, in floats.
struct ForwardScratch {
  float* q;       // [padded][kTile]: queries, transposed
  float* out;     // [padded][kTile]: unnormalised result, transposed
  float* k;       // [kTile][padded]
  float* v;       // [kTile][padded]
  float* scores;  // [kTile][kTile]: [key][query]

  static constexpr std::int64_t floats(std::int64_t head_dim) {
    return 4 * kTile * padded(head_dim) + kTile * kTile;
  }
  ForwardScratch(float* base, std::int64_t head_dim) {
    const std::int64_t block = kTile * padded(head_dim);
    q = base;
    out = q + block;
    k = out + block;
    v = k + block;
    scores = v + block;
  }
};

// Scratch of one thread in the backward pass, in floats.
struct BackwardScratch {
  float* q;        // [kTile][padded]
  float* q_t;      // [padded][kTile]
  float* d_out;    // [kTile][padded]
  float* d_out_t;  // [padded][kTile]
  float* d_q_t;    // [padded][kTile]
  float* k;        // [kTile][padded]
  float* v;        // [kTile][padded]
  float* p;        // [kTile][kTile]: probabilities, [key][query]
  float* d_s;      // [kTile][kTile]: gradient of the scores

  static constexpr std::int64_t floats(std::int64_t head_dim) {
    return 7 * kTile * padded(head_dim) + 2 * kTile * kTile;
  }
  BackwardScratch(float* base, std::int64_t head_dim) {
    const std::int64_t block = kTile * padded(head_dim);
    q = base;
    q_t = q + block;
    d_out = q_t + block;
    d_out_t = d_out + block;
    d_q_t = d_out_t + block;
    k = d_q_t + block;
    v = k + block;
    p = v + block;
    d_s = p + kTile * kTile;
  }
};

// The backward pass sums d_k and d_v of one (batch, kv head) over its (head of the group, query
// tile) items. With few heads the items are dealt to several shares, each with its own sums, so
// that there is work for more threads; the sums of the shares are then added in order.
struct BackwardSplit {
  static constexpr std::int64_t kPieces = 16;    // wanted, whatever the machine
  static constexpr std::int64_t kMaxShares = 8;  // each costs memory for d_k and d_v

  std::int64_t items;   // (head of the group, query tile) pairs of one (batch, kv head)
  std::int64_t shares;  // per (batch, kv head)
  std::int64_t sums;    // floats of one share: d_k then d_v, [kv_len][padded] each

  explicit BackwardSplit(const AttentionShape& shape) {
    const std::int64_t tiles = (shape.q_len + kTile - 1) / kTile;
    const std::int64_t kv_heads = std::max<std::int64_t>(1, shape.batch * shape.kv_heads);
    items = shape.heads / shape.kv_heads * tiles;
    shares = std::min({(kPieces + kv_heads - 1) / kv_heads, kMaxShares, items});
    sums = 2 * shape.kv_len * padded(shape.head_dim);
  }
};

// Candidate functions, for every dtype of storage (f32, bf16).
const char* declines_forward(const AttentionForwardArgs& args);
const char* declines_backward(const AttentionBackwardArgs& args);
std::size_t forward_workspace(const AttentionForwardArgs& args);
std::size_t backward_workspace(const AttentionBackwardArgs& args);
void run_forward(const AttentionForwardArgs& args, KernelContext& context);
void run_backward(const AttentionBackwardArgs& args, KernelContext& context);
void run_rotary(const RotaryArgs& args, KernelContext& context);

}  // namespace belay::attention
