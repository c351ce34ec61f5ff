// Attention backward: probabilities are computed again from the log-sum-exp of the forward pass
// (Dao et al., arXiv:2205.14135, algorithm 4). The outer loop walks query tiles, so d_q needs no
// memory of its own; d_k and d_v are summed in scratch.

#include <cmath>
#include <cstring>

#include "belay/base/parallel.h"
#include "belay/device/cpu/attention/tiles.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "belay/device/cpu/attention/backward.cc"
#include "belay/device/cpu/attention/targets.h"

#include <hwy/foreach_target.h>

#include "belay/device/cpu/attention/gemm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace belay::attention::HWY_NAMESPACE {

// Per query: log2-sum-exp2 of the scores, and rowsum(d_dst * dst).
struct RowStatistics {
  alignas(64) float lse[kTile];
  alignas(64) float delta[kTile];
};

// p: scores -> probabilities; d_s: gradient of the probabilities -> gradient of the scores (both
// without the factor `scale`, which is applied to d_q and d_k at the end).
template <bool kMasked>
HWY_INLINE void softmax_gradient(const QueryTile& queries, const KeyTile& keys, float factor,
                                 const RowStatistics& rows, float* p, float* d_s) {
  const FloatTag tag;
  const hn::RebindToSigned<FloatTag> whole;
  const Floats factors = hn::Set(tag, factor);
  for (std::int64_t column = keys.first; column < keys.last; column += kLanes) {
    const auto at = static_cast<std::size_t>(column);
    const auto begin = hn::Load(whole, &queries.begin[at]);
    const auto last = hn::Load(whole, &queries.last[at]);
    const Floats lse = hn::Load(tag, rows.lse + column);
    const Floats delta = hn::Load(tag, rows.delta + column);
    for (std::int64_t j = 0; j < keys.count; ++j) {
      float* p_at = p + j * kTile + column;
      float* d_s_at = d_s + j * kTile + column;
      Floats probability = exp2(hn::MulSub(hn::Load(tag, p_at), factors, lse));
      if constexpr (kMasked) {
        const auto key = hn::Set(whole, static_cast<std::int32_t>(keys.begin + j));
        const auto invisible = hn::Or(hn::Gt(begin, key), hn::Gt(key, last));
        probability = hn::IfThenZeroElse(hn::RebindMask(tag, invisible), probability);
      }
      hn::Store(probability, tag, p_at);
      hn::Store(hn::Mul(probability, hn::Sub(hn::Load(tag, d_s_at), delta)), tag, d_s_at);
    }
  }
}

// Packs q and d_dst of a query tile and computes the row statistics. Rows beyond the last query are
// zero, so they add exactly nothing anywhere.
template <class T>
HWY_INLINE void load_queries(const AttentionBackwardArgs& args, std::int64_t batch,
                             std::int64_t head, const QueryTile& queries,
                             const BackwardScratch& scratch, RowStatistics& statistics) {
  const AttentionShape& s = args.shape;
  const std::int64_t dim = s.head_dim;
  const std::int64_t stride = padded(dim);
  const std::int64_t width = s.heads * dim;
  const std::int64_t row = batch * s.q_len + queries.first;
  const FloatTag tag;
  // q_t is still free here and holds dst for a moment.
  pack_rows(args.dst.as<T>() + row * width + head * dim, width, queries.count, queries.count, dim,
            scratch.q_t, stride);
  pack_rows(args.d_dst.as<T>() + row * width + head * dim, width, queries.count, queries.columns(),
            dim, scratch.d_out, stride);
  const float* lse = args.lse.as<float>() + (batch * s.heads + head) * s.q_len + queries.first;
  for (std::int64_t i = 0; i < kTile; ++i) {
    statistics.lse[i] = 0.0F;
    statistics.delta[i] = 0.0F;
    if (i >= queries.count) continue;
    Floats sum = hn::Zero(tag);
    for (std::int64_t d = 0; d < stride; d += kLanes) {
      sum = hn::MulAdd(hn::Load(tag, scratch.q_t + i * stride + d),
                       hn::Load(tag, scratch.d_out + i * stride + d), sum);
    }
    statistics.lse[i] = lse[i] * 0x1.715476p0F;  // log2(e)
    statistics.delta[i] = hn::GetLane(hn::SumOfLanes(tag, sum));
  }
  pack_rows(args.q.row<T>(row) + head * dim, args.q.stride, queries.count, queries.columns(), dim,
            scratch.q, stride);
  transpose(scratch.q, stride, queries.columns(), stride, scratch.q_t, kTile);
  transpose(scratch.d_out, stride, queries.columns(), stride, scratch.d_out_t, kTile);
}

// One (head, query tile): writes d_q, adds to d_k and d_v ([kv_len][padded] sums).
template <class T>
HWY_INLINE void backward_tile(const AttentionBackwardArgs& args, std::int64_t batch,
                              std::int64_t head, std::int64_t tile, const BackwardScratch& scratch,
                              float* d_k, float* d_v) {
  const AttentionShape& s = args.shape;
  const std::int64_t dim = s.head_dim;
  const std::int64_t stride = padded(dim);
  const std::int64_t kv_column = head / (s.heads / s.kv_heads) * dim;
  const float factor = s.scale * 0x1.715476p0F;  // log2(e)
  const QueryTile queries(s, args.doc_begin, batch, tile);
  const FloatTag tag;
  RowStatistics statistics;
  load_queries<T>(args, batch, head, queries, scratch, statistics);
  for (std::int64_t i = 0; i < stride * kTile; i += kLanes) {
    hn::Store(hn::Zero(tag), tag, scratch.d_q_t + i);
  }

  queries.for_each_key_tile([&](const KeyTile& keys) HWY_ATTR {
    const std::int64_t key_row = batch * s.kv_len + keys.begin;
    const std::int64_t columns = keys.last - keys.first;
    float* p = scratch.p + keys.first;
    float* d_s = scratch.d_s + keys.first;
    pack_rows(args.k.row<T>(key_row) + kv_column, args.k.stride, keys.count, keys.count, dim,
              scratch.k, stride);
    pack_rows(args.v.row<T>(key_row) + kv_column, args.v.stride, keys.count, keys.count, dim,
              scratch.v, stride);
    gemm({scratch.k, stride, 1}, {scratch.q_t + keys.first, kTile}, {p, kTile, false}, keys.count,
         columns, dim);
    gemm({scratch.v, stride, 1}, {scratch.d_out_t + keys.first, kTile}, {d_s, kTile, false},
         keys.count, columns, dim);
    if (keys.masked) {
      softmax_gradient<true>(queries, keys, factor, statistics, scratch.p, scratch.d_s);
    } else {
      softmax_gradient<false>(queries, keys, factor, statistics, scratch.p, scratch.d_s);
    }
    gemm({p, kTile, 1}, {scratch.d_out + keys.first * stride, stride},
         {d_v + keys.begin * stride, stride, true}, keys.count, stride, columns);
    gemm({d_s, kTile, 1}, {scratch.q + keys.first * stride, stride},
         {d_k + keys.begin * stride, stride, true}, keys.count, stride, columns);
    gemm({scratch.k, 1, stride}, {d_s, kTile}, {scratch.d_q_t + keys.first, kTile, true}, dim,
         columns, keys.count);
  });

  transpose(scratch.d_q_t, kTile, stride, queries.columns(), scratch.k, stride);
  unpack_rows(scratch.k, stride, queries.count, dim, s.scale,
              args.d_q.row<T>(batch * s.q_len + queries.first) + head * dim, args.d_q.stride);
}

HWY_NOINLINE void backward_share(const AttentionBackwardArgs& args, const BackwardSplit& split,
                                 std::int64_t batch, std::int64_t kv_head, std::int64_t share,
                                 float* scratch_base, float* sums) {
  const AttentionShape& s = args.shape;
  const BackwardScratch scratch(scratch_base, s.head_dim);
  const std::int64_t group = s.heads / s.kv_heads;
  const std::int64_t tiles = split.items / group;
  std::memset(sums, 0, static_cast<std::size_t>(split.sums) * sizeof(float));
  for (std::int64_t item = share; item < split.items; item += split.shares) {
    const std::int64_t head = kv_head * group + item / tiles;
    if (args.q.dtype == DType::bf16) {
      backward_tile<Bf16>(args, batch, head, item % tiles, scratch, sums, sums + split.sums / 2);
    } else {
      backward_tile<float>(args, batch, head, item % tiles, scratch, sums, sums + split.sums / 2);
    }
  }
}

// Adds the sums of all shares in order into the first and stores rows [first, first + count).
HWY_NOINLINE void store_gradients(const AttentionBackwardArgs& args, const BackwardSplit& split,
                                  std::int64_t batch, std::int64_t kv_head, std::int64_t first,
                                  std::int64_t count, float* sums) {
  const AttentionShape& s = args.shape;
  const std::int64_t stride = padded(s.head_dim);
  const std::int64_t row = batch * s.kv_len + first;
  const std::int64_t column = kv_head * s.head_dim;
  const FloatTag tag;
  float* d_k = sums + first * stride;
  float* d_v = d_k + split.sums / 2;
  for (float* total : {d_k, d_v}) {
    for (std::int64_t share = 1; share < split.shares; ++share) {
      const float* part = total + share * split.sums;
      for (std::int64_t i = 0; i < count * stride; i += kLanes) {
        hn::Store(hn::Add(hn::Load(tag, total + i), hn::Load(tag, part + i)), tag, total + i);
      }
    }
  }
  if (args.q.dtype == DType::bf16) {
    unpack_rows(d_k, stride, count, s.head_dim, s.scale, args.d_k.row<Bf16>(row) + column,
                args.d_k.stride);
    unpack_rows(d_v, stride, count, s.head_dim, 1.0F, args.d_v.row<Bf16>(row) + column,
                args.d_v.stride);
  } else {
    unpack_rows(d_k, stride, count, s.head_dim, s.scale, args.d_k.row<float>(row) + column,
                args.d_k.stride);
    unpack_rows(d_v, stride, count, s.head_dim, 1.0F, args.d_v.row<float>(row) + column,
                args.d_v.stride);
  }
}

}  // namespace belay::attention::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace belay::attention {

HWY_EXPORT(backward_share);
HWY_EXPORT(store_gradients);

// One share per (batch, kv head) keeps its sums in the scratch of its thread and stores them at
// once; several keep them apart until all are done.
std::size_t backward_workspace(const AttentionBackwardArgs& args) {
  const AttentionShape& s = args.shape;
  const BackwardSplit split(s);
  const std::int64_t buffers =
      split.shares == 1 ? thread_count() : s.batch * s.kv_heads * split.shares;
  return static_cast<std::size_t>(thread_count() * BackwardScratch::floats(s.head_dim) +
                                  buffers * split.sums) *
         sizeof(float);
}

void run_backward(const AttentionBackwardArgs& args, KernelContext& context) {
  const AttentionShape& s = args.shape;
  const BackwardSplit split(s);
  BELAY_CHECK(context.workspace_bytes >= backward_workspace(args));
  auto* scratch = reinterpret_cast<float*>(context.workspace);
  float* sums = scratch + thread_count() * BackwardScratch::floats(s.head_dim);
  const auto run_share = HWY_DYNAMIC_DISPATCH(backward_share);
  const auto store = HWY_DYNAMIC_DISPATCH(store_gradients);
  parallel_for(s.batch * s.kv_heads * split.shares, [&](std::int64_t index) {
    const std::int64_t head = index / split.shares;
    float* own = sums + (split.shares == 1 ? thread_index() : index) * split.sums;
    run_share(args, split, head / s.kv_heads, head % s.kv_heads, index % split.shares,
              scratch + thread_index() * BackwardScratch::floats(s.head_dim), own);
    if (split.shares == 1)
      store(args, split, head / s.kv_heads, head % s.kv_heads, 0, s.kv_len, own);
  });
  if (split.shares == 1) return;
  const std::int64_t blocks = pieces_of(s.kv_len, kTile);
  parallel_for(s.batch * s.kv_heads * blocks, [&](std::int64_t index) {
    const std::int64_t head = index / blocks;
    const std::int64_t first = index % blocks * kTile;
    store(args, split, head / s.kv_heads, head % s.kv_heads, first,
          std::min(kTile, s.kv_len - first), sums + head * split.shares * split.sums);
  });
}

}  // namespace belay::attention
#endif
