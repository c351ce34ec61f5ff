// Attention backward: probabilities are computed again from the log-sum-exp of the forward pass
// (Dao et al., arXiv:2205.14135, algorithm 4). The outer loop walks query tiles, so d_q needs no
// memory of its own; d_k and d_v are summed in scratch.

#include <cstring>

#include "belay/base/parallel.h"
#include "belay/device/cpu/attention/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "belay/device/cpu/attention/backward.cc"
#include "belay/device/cpu/attention/targets.h"

#include <hwy/foreach_target.h>

#include "belay/device/cpu/attention/backward-inl.h"
#include "belay/device/cpu/attention/gemm-inl.h"
#include "belay/device/cpu/attention/softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace belay::attention::HWY_NAMESPACE {

// p: scores -> probabilities; d_s: gradient of the probabilities -> gradient of the scores.
template <bool kMasked>
HWY_INLINE void softmax_gradient(const QueryTile& queries, const KeyTile& keys, float factor,
                                 const RowStatistics& rows, float* p, float* d_s) {
  const FloatTag tag;
  for (std::int64_t column = keys.first; column < keys.last; column += kLanes) {
    const SoftmaxGradient<kMasked> gradient(queries, keys, factor, rows, column);
    for (std::int64_t j = 0; j < keys.count; ++j) {
      const std::int64_t at = j * kTile + column;
      Floats probability = hn::Load(tag, p + at);
      Floats score_gradient = hn::Load(tag, d_s + at);
      gradient.apply(j, probability, score_gradient);
      hn::Store(probability, tag, p + at);
      hn::Store(score_gradient, tag, d_s + at);
    }
  }
}

// Packs q and d_dst of a query tile and computes the row statistics. Rows beyond the last query are
// zero, so they add exactly nothing anywhere.
HWY_INLINE void load_queries(const AttentionBackwardArgs& args, std::int64_t batch,
                             std::int64_t head, const QueryTile& queries,
                             const BackwardScratch& scratch, RowStatistics& statistics) {
  const AttentionShape& s = args.shape;
  const std::int64_t dim = s.head_dim;
  const std::int64_t stride = padded(dim);
  const std::int64_t row = batch * s.q_len + queries.first;
  row_statistics(args, batch, head, queries, statistics);
  pack_rows(columns(args.d_dst, 0, s.heads * dim), row, head * dim, queries.count,
            queries.columns(), dim, scratch.d_out, stride);
  pack_rows(args.q, row, head * dim, queries.count, queries.columns(), dim, scratch.q, stride);
  transpose(scratch.q, stride, queries.columns(), stride, scratch.q_t, kTile);
  transpose(scratch.d_out, stride, queries.columns(), stride, scratch.d_out_t, kTile);
}

// One (head, query tile): writes d_q, adds to d_k and d_v.
HWY_INLINE void backward_tile(const AttentionBackwardArgs& args, std::int64_t batch,
                              std::int64_t head, std::int64_t tile, const BackwardScratch& scratch,
                              const ShareBuffers& all) {
  const AttentionShape& s = args.shape;
  const std::int64_t dim = s.head_dim;
  const std::int64_t stride = padded(dim);
  const float factor = s.scale * 0x1.715476p0F;  // log2(e)
  const QueryTile queries(s, args.doc_begin, batch, tile, s.kv_len);
  const FloatTag tag;
  RowStatistics statistics;
  load_queries(args, batch, head, queries, scratch, statistics);
  for (std::int64_t i = 0; i < stride * kTile; i += kLanes) {
    hn::Store(hn::Zero(tag), tag, scratch.d_q_t + i);
  }

  queries.for_each_key_tile([&](const KeyTile& keys) HWY_ATTR {
    const std::int64_t columns = keys.last - keys.first;
    const std::int64_t at = keys.begin * stride;
    float* p = scratch.p + keys.first;
    float* d_s = scratch.d_s + keys.first;
    gemm(Left<float>{all.k + at, stride, 1}, Right<float>{scratch.q_t + keys.first, kTile},
         {p, kTile, false}, keys.count, columns, dim);
    if (args.inside != Inside::full) keep_scores(args.q.dtype, args.inside, keys, scratch.p);
    gemm(Left<float>{all.v + at, stride, 1}, Right<float>{scratch.d_out_t + keys.first, kTile},
         {d_s, kTile, false}, keys.count, columns, dim);
    if (keys.masked) {
      softmax_gradient<true>(queries, keys, factor, statistics, scratch.p, scratch.d_s);
    } else {
      softmax_gradient<false>(queries, keys, factor, statistics, scratch.p, scratch.d_s);
    }
    gemm(Left<float>{p, kTile, 1}, Right<float>{scratch.d_out + keys.first * stride, stride},
         {all.d_v + at, stride, true}, keys.count, stride, columns);
    gemm(Left<float>{d_s, kTile, 1}, Right<float>{scratch.q + keys.first * stride, stride},
         {all.d_k + at, stride, true}, keys.count, stride, columns);
    gemm(Left<float>{all.k + at, 1, stride}, Right<float>{d_s, kTile},
         {scratch.d_q_t + keys.first, kTile, true}, dim, columns, keys.count);
  });

  transpose(scratch.d_q_t, kTile, stride, queries.columns(), scratch.q, stride);
  unpack_rows(scratch.q, stride, queries.count, dim, s.scale, args.d_q,
              batch * s.q_len + queries.first, head * dim);
}

HWY_NOINLINE void pack_keys(const AttentionBackwardArgs& args, std::int64_t batch,
                            std::int64_t kv_head, std::int64_t first, std::int64_t count,
                            const ShareBuffers& buffers) {
  const std::int64_t dim = args.shape.head_dim;
  const std::int64_t stride = padded(dim);
  const std::int64_t row = batch * args.shape.kv_len + first;
  const std::int64_t to = first * stride;
  pack_rows(args.k, row, kv_head * dim, count, count, dim, buffers.k + to, stride);
  pack_rows(args.v, row, kv_head * dim, count, count, dim, buffers.v + to, stride);
}

HWY_NOINLINE void backward_share(const AttentionBackwardArgs& args, const BackwardSplit& split,
                                 std::int64_t batch, std::int64_t kv_head, std::int64_t share,
                                 float* scratch_base, const ShareBuffers& buffers) {
  const BackwardScratch scratch(scratch_base, args.shape.head_dim);
  for (std::int64_t item = share; item < split.items; item += split.shares) {
    const std::int64_t head = kv_head * split.group + item / split.tiles;
    backward_tile(args, batch, head, item % split.tiles, scratch, buffers);
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
  float* d_v = d_k + split.matrix;
  for (float* total : {d_k, d_v}) {
    for (std::int64_t share = 1; share < split.shares; ++share) {
      const float* part = total + share * split.pair();
      for (std::int64_t i = 0; i < count * stride; i += kLanes) {
        hn::Store(hn::Add(hn::Load(tag, total + i), hn::Load(tag, part + i)), tag, total + i);
      }
    }
  }
  unpack_rows(d_k, stride, count, s.head_dim, s.scale, args.d_k, row, column);
  unpack_rows(d_v, stride, count, s.head_dim, 1.0F, args.d_v, row, column);
}

}  // namespace belay::attention::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace belay::attention {

HWY_EXPORT(pack_keys);
HWY_EXPORT(backward_share);
HWY_EXPORT(store_gradients);

namespace {

// Where scratch, sums and packed keys lie in the workspace, in floats.
struct SplitLayout {
  std::int64_t scratch;  // of all threads
  std::int64_t sums;     // pairs of matrices
  std::int64_t keys;     // likewise

  SplitLayout(const AttentionShape& shape, const BackwardSplit& split, std::int64_t scratch_floats)
      : scratch(thread_count() * scratch_floats),
        sums(shape.batch * shape.kv_heads * split.shares),
        keys(shape.batch * shape.kv_heads) {
    if (split.shares == 1) sums = keys = thread_count();
  }
};

}  // namespace

std::size_t split_workspace(const AttentionBackwardArgs& args, std::int64_t scratch_floats) {
  const BackwardSplit split(args.shape);
  const SplitLayout layout(args.shape, split, scratch_floats);
  return static_cast<std::size_t>(layout.scratch + (layout.sums + layout.keys) * split.pair()) *
         sizeof(float);
}

void run_split(const AttentionBackwardArgs& args, KernelContext& context,
               std::int64_t scratch_floats, PackKeys* pack, RunShare* run_share) {
  const AttentionShape& s = args.shape;
  const BackwardSplit split(s);
  const SplitLayout layout(s, split, scratch_floats);
  BELAY_CHECK(context.workspace_bytes >= split_workspace(args, scratch_floats));
  auto* scratch = reinterpret_cast<float*>(context.workspace);
  float* sums = scratch + layout.scratch;
  float* keys = sums + layout.sums * split.pair();
  const auto buffers = [&](std::int64_t sum, std::int64_t key) {
    float* d_k = sums + sum * split.pair();
    float* k = keys + key * split.pair();
    return ShareBuffers{d_k, d_k + split.matrix, k, k + split.matrix};
  };
  const auto store = HWY_DYNAMIC_DISPATCH(store_gradients);
  const auto run = [&](std::int64_t batch, std::int64_t kv_head, std::int64_t share,
                       const ShareBuffers& own) {
    std::memset(own.d_k, 0, static_cast<std::size_t>(split.pair()) * sizeof(float));
    run_share(args, split, batch, kv_head, share, scratch + thread_index() * scratch_floats, own);
  };
  const std::int64_t kv_heads = s.batch * s.kv_heads;
  if (split.shares == 1) {
    parallel_for(kv_heads, [&](std::int64_t index) {
      const std::int64_t batch = index / s.kv_heads;
      const std::int64_t kv_head = index % s.kv_heads;
      const ShareBuffers own = buffers(thread_index(), thread_index());
      pack(args, batch, kv_head, 0, s.kv_len, own);
      run(batch, kv_head, 0, own);
      store(args, split, batch, kv_head, 0, s.kv_len, own.d_k);
    });
    return;
  }
  const std::int64_t blocks = pieces_of(s.kv_len, kTile);
  const auto for_each_block = [&](auto&& body) {
    parallel_for(kv_heads * blocks, [&](std::int64_t index) {
      const std::int64_t head = index / blocks;
      const std::int64_t first = index % blocks * kTile;
      body(head, first, std::min(kTile, s.kv_len - first));
    });
  };
  for_each_block([&](std::int64_t head, std::int64_t first, std::int64_t count) {
    pack(args, head / s.kv_heads, head % s.kv_heads, first, count, buffers(0, head));
  });
  parallel_for(kv_heads * split.shares, [&](std::int64_t index) {
    const std::int64_t head = index / split.shares;
    run(head / s.kv_heads, head % s.kv_heads, index % split.shares, buffers(index, head));
  });
  for_each_block([&](std::int64_t head, std::int64_t first, std::int64_t count) {
    store(args, split, head / s.kv_heads, head % s.kv_heads, first, count,
          buffers(head * split.shares, head).d_k);
  });
}

std::size_t backward_workspace(const AttentionBackwardArgs& args) {
  return split_workspace(args, BackwardScratch::floats(args.shape.head_dim));
}

void run_backward(const AttentionBackwardArgs& args, KernelContext& context) {
  run_split(args, context, BackwardScratch::floats(args.shape.head_dim),
            HWY_DYNAMIC_DISPATCH(pack_keys), HWY_DYNAMIC_DISPATCH(backward_share));
}

}  // namespace belay::attention
#endif
