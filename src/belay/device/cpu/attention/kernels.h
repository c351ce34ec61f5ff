#pragma once
// The kernels of attention on the host processor and how they lay out their workspace.

#include "belay/device/cpu/attention/tiles.h"

namespace belay::attention {

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
  float* p;        // [kTile][kTile]: probabilities, [key][query]
  float* d_s;      // [kTile][kTile]: gradient of the scores

  static constexpr std::int64_t floats(std::int64_t head_dim) {
    return 5 * kTile * padded(head_dim) + 2 * kTile * kTile;
  }
  BackwardScratch(float* base, std::int64_t head_dim) {
    const std::int64_t block = kTile * padded(head_dim);
    q = base;
    q_t = q + block;
    d_out = q_t + block;
    d_out_t = d_out + block;
    d_q_t = d_out_t + block;
    p = d_q_t + block;
    d_s = p + kTile * kTile;
  }
};

// Scratch of one thread in the forward pass on bf16 pairs. Sizes are in 32-bit words.
struct ForwardPairScratch {
  std::uint32_t* q;        // [padded / 2][kTile]: pairs along head_dim, transposed
  float* out;              // [padded][kTile]
  std::uint32_t* k;        // [kTile][padded / 2]
  std::uint32_t* v;        // [kTile][padded / 2]
  std::uint32_t* v_pairs;  // [kTile / 2][padded]: pairs of keys
  float* scores;           // [kTile][kTile]
  std::uint32_t* p;        // [kTile / 2][kTile]: probabilities in pairs of keys
  float* staging;          // [kTile][padded], in the place of k and v

  static constexpr std::int64_t floats(std::int64_t head_dim) {
    return 3 * kTile * padded(head_dim) + kTile * kTile * 3 / 2;
  }
  ForwardPairScratch(float* base, std::int64_t head_dim) {
    const std::int64_t block = kTile * padded(head_dim);
    auto* words = reinterpret_cast<std::uint32_t*>(base);
    q = words;
    k = words + block / 2;
    v = words + block;
    staging = base + block / 2;
    v_pairs = words + block * 3 / 2;
    out = base + block * 2;
    scores = base + block * 3;
    p = words + block * 3 + kTile * kTile;
  }
};

// Scratch of one thread in the backward pass on bf16 pairs. Sizes are in 32-bit words.
struct BackwardPairScratch {
  std::uint32_t* q_t;          // [padded / 2][kTile]: pairs along head_dim, transposed
  std::uint32_t* q_pairs;      // [kTile / 2][padded]: pairs of queries
  std::uint32_t* d_out_t;      // like q_t
  std::uint32_t* d_out_pairs;  // like q_pairs
  float* d_q_t;                // [padded][kTile]
  std::uint32_t* rows;         // [kTile][padded / 2]: of q or d_out
  std::uint32_t* k_pairs;      // [kTile / 2][padded]: pairs of keys
  float* staging;              // [kTile][padded], in the place of rows
  float* p;                    // [kTile][kTile]: scores
  float* d_s;                  // [kTile][kTile]: gradient of the probabilities
  std::uint32_t* p_rows;       // [kTile][kTile / 2]: probabilities, pairs of queries
  std::uint32_t* d_s_rows;     // [kTile][kTile / 2]: score gradients, pairs of queries
  std::uint32_t* d_s_pairs;    // [kTile / 2][kTile]: score gradients, pairs of keys

  static constexpr std::int64_t floats(std::int64_t head_dim) {
    return kTile * padded(head_dim) * 9 / 2 + kTile * kTile * 7 / 2;
  }
  BackwardPairScratch(float* base, std::int64_t head_dim) {
    const std::int64_t half = kTile * padded(head_dim) / 2;
    auto* words = reinterpret_cast<std::uint32_t*>(base);
    q_t = words;
    q_pairs = words + half;
    d_out_t = words + 2 * half;
    d_out_pairs = words + 3 * half;
    rows = words + 4 * half;
    staging = base + 4 * half;
    k_pairs = words + 6 * half;
    d_q_t = base + 7 * half;
    p = base + 9 * half;
    d_s = p + kTile * kTile;
    p_rows = words + 9 * half + 2 * kTile * kTile;
    d_s_rows = p_rows + kTile * kTile / 2;
    d_s_pairs = d_s_rows + kTile * kTile / 2;
  }
};

// The backward pass sums d_k and d_v of one (batch, kv head) over its (head of the group, query
// tile) items. With few heads the items are dealt to several shares, each with its own sums, so
// that there is work for more threads; the sums of the shares are then added in order.
struct BackwardSplit {
  static constexpr std::int64_t kPieces = 12;    // wanted, whatever the machine
  static constexpr std::int64_t kMaxShares = 8;  // each costs memory for d_k and d_v

  std::int64_t group;   // heads per kv head
  std::int64_t tiles;   // query tiles
  std::int64_t items;   // (head of the group, query tile) pairs of one (batch, kv head)
  std::int64_t shares;  // per (batch, kv head)
  std::int64_t matrix;  // floats of [kv_len][padded], d_k or d_v

  // Floats of one share's sums, d_k then d_v, and of the keys and values that it reads.
  [[nodiscard]] std::int64_t pair() const { return 2 * matrix; }

  explicit BackwardSplit(const AttentionShape& shape) {
    group = shape.heads / shape.kv_heads;
    tiles = (shape.q_len + kTile - 1) / kTile;
    const std::int64_t kv_heads = std::max<std::int64_t>(1, shape.batch * shape.kv_heads);
    items = group * tiles;
    shares = std::min({(kPieces + kv_heads - 1) / kv_heads, kMaxShares, items});
    matrix = shape.kv_len * padded(shape.head_dim);
  }
};

// What one share works with besides its scratch: [kv_len][padded] each.
struct ShareBuffers {
  float* d_k;  // sums
  float* d_v;
  // Keys and values packed once for all query tiles, in floats or, in half the room, pairs of bf16.
  float* k;
  float* v;
};

// Packs keys and values [first, first + count) of a (batch, kv head).
using PackKeys = void(const AttentionBackwardArgs& args, std::int64_t batch, std::int64_t kv_head,
                      std::int64_t first, std::int64_t count, const ShareBuffers& buffers);
// Runs one share with the scratch of its thread.
using RunShare = void(const AttentionBackwardArgs& args, const BackwardSplit& split,
                      std::int64_t batch, std::int64_t kv_head, std::int64_t share, float* scratch,
                      const ShareBuffers& buffers);
// Runs all shares and stores d_k and d_v. A single share per (batch, kv head) keeps its buffers in
// memory of its thread and stores its sums at once; several share the keys and values and keep
// their sums apart until all are done.
std::size_t split_workspace(const AttentionBackwardArgs& args, std::int64_t scratch_floats);
void run_split(const AttentionBackwardArgs& args, KernelContext& context,
               std::int64_t scratch_floats, PackKeys* pack_keys, RunShare* run_share);

// What one head carries from key tile to key tile when a single query is answered.
struct DecodeHead {
  alignas(64) float scores[kTile];
  float largest;  // score in units of log2
  float sum;
};

// One query per row, any storage.
std::size_t decode_workspace(const AttentionForwardArgs& args);
void run_decode(const AttentionForwardArgs& args, KernelContext& context);

// f32 products, any storage.
std::size_t forward_workspace(const AttentionForwardArgs& args);
std::size_t backward_workspace(const AttentionBackwardArgs& args);
void run_forward(const AttentionForwardArgs& args, KernelContext& context);
void run_backward(const AttentionBackwardArgs& args, KernelContext& context);

// bf16 products, bf16 storage; only where the processor multiplies pairs.
bool has_pair_products();
std::size_t forward_bf16_workspace(const AttentionForwardArgs& args);
std::size_t backward_bf16_workspace(const AttentionBackwardArgs& args);
void run_forward_bf16(const AttentionForwardArgs& args, KernelContext& context);
void run_backward_bf16(const AttentionBackwardArgs& args, KernelContext& context);

void run_rotary(const RotaryArgs& args, KernelContext& context);
void run_scatter_rows(const ScatterRowsArgs& args, KernelContext& context);

}  // namespace belay::attention
