// Attention forward: one piece per (batch, head, query tile), online softmax over key tiles
// (Dao et al., arXiv:2205.14135, algorithm 1; Milakov & Gimelshein, arXiv:1805.02867).

#include "belay/base/parallel.h"
#include "belay/device/cpu/attention/kernels.h"
#include "belay/device/key_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "belay/device/cpu/attention/forward.cc"
#include "belay/device/cpu/attention/targets.h"

#include <hwy/foreach_target.h>

#include "belay/device/cpu/attention/gemm-inl.h"
#include "belay/device/cpu/attention/softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace belay::attention::HWY_NAMESPACE {

HWY_NOINLINE void forward_piece(const AttentionForwardArgs& args, std::int64_t batch,
                                std::int64_t head, std::int64_t tile, float* scratch_base) {
  const AttentionShape& s = args.shape;
  const std::int64_t dim = s.head_dim;
  const std::int64_t stride = padded(dim);
  const std::int64_t kv_column = head / (s.heads / s.kv_heads) * dim;
  const float factor = s.scale * 0x1.715476p0F;  // log2(e)
  const KeyRows key_rows(args, batch);
  const QueryTile queries(s, args.doc_begin, batch, tile, key_rows.count());
  const ForwardScratch scratch(scratch_base, dim);
  const FloatTag tag;

  // k serves as staging before and after the key tiles.
  const std::int64_t row = batch * s.q_len + queries.first;
  pack_rows(args.q, row, head * dim, queries.count, queries.columns(), dim, scratch.k, stride);
  transpose(scratch.k, stride, queries.columns(), stride, scratch.q, kTile);
  Softmax softmax;
  start_softmax(softmax, scratch.out, stride * kTile);

  queries.for_each_key_tile([&](const KeyTile& keys) HWY_ATTR {
    const std::int64_t columns = keys.last - keys.first;
    key_rows.for_each_run(
        keys.begin, keys.count,
        [&](std::int64_t at, std::int64_t key_row, std::int64_t run) HWY_ATTR {
          const std::int64_t to = at * stride;
          pack_rows(args.k, key_row, kv_column, run, run, dim, scratch.k + to, stride);
          pack_rows(args.v, key_row, kv_column, run, run, dim, scratch.v + to, stride);
        });
    gemm(Left<float>{scratch.k, stride, 1}, Right<float>{scratch.q + keys.first, kTile},
         {scratch.scores + keys.first, kTile, false}, keys.count, columns, dim);
    if (args.inside != Inside::full) keep_scores(args.q.dtype, args.inside, keys, scratch.scores);
    if (keys.masked) mask_scores(queries, keys, scratch.scores);
    update_softmax(keys, factor, softmax, scratch.scores, scratch.out, dim,
                   [&](std::int64_t column, Floats factors, Floats offset) HWY_ATTR {
                     Floats sum = hn::Zero(tag);
                     for (std::int64_t j = 0; j < keys.count; ++j) {
                       float* score = scratch.scores + j * kTile + column;
                       const Floats p = exp2(hn::MulSub(hn::Load(tag, score), factors, offset));
                       hn::Store(p, tag, score);
                       sum = hn::Add(sum, p);
                     }
                     return sum;
                   });
    gemm(Left<float>{scratch.v, 1, stride}, Right<float>{scratch.scores + keys.first, kTile},
         {scratch.out + keys.first, kTile, true}, dim, columns, keys.count);
  });

  float* lse = args.lse.empty()
                   ? nullptr
                   : args.lse.as<float>() + (batch * s.heads + head) * s.q_len + queries.first;
  finish_softmax(queries, s.scale, softmax, scratch.out, dim, lse);
  transpose(scratch.out, kTile, stride, queries.columns(), scratch.k, stride);
  unpack_rows(scratch.k, stride, queries.count, dim, 1.0F, columns(args.dst, 0, s.heads * dim), row,
              head * dim);
}

}  // namespace belay::attention::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace belay::attention {

HWY_EXPORT(forward_piece);

std::size_t forward_workspace(const AttentionForwardArgs& args) {
  return static_cast<std::size_t>(thread_count() * ForwardScratch::floats(args.shape.head_dim)) *
         sizeof(float);
}

void run_forward(const AttentionForwardArgs& args, KernelContext& context) {
  const AttentionShape& s = args.shape;
  BELAY_CHECK(context.workspace_bytes >= forward_workspace(args));
  auto* scratch = reinterpret_cast<float*>(context.workspace);
  const std::int64_t tiles = pieces_of(s.q_len, kTile);
  const auto piece = HWY_DYNAMIC_DISPATCH(forward_piece);
  parallel_for(s.batch * s.heads * tiles, [&](std::int64_t index) {
    const std::int64_t head = index / tiles;
    // Later tiles see more keys: they go first, so that threads finish together.
    piece(args, head / s.heads, head % s.heads, tiles - 1 - index % tiles,
          scratch + thread_index() * ForwardScratch::floats(s.head_dim));
  });
}

}  // namespace belay::attention
#endif
