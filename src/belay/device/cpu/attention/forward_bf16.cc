// Attention forward for bf16 storage on processors with avx512_bf16: as forward.cc, with both
// products on bf16 pairs. Scores, the softmax and all sums stay in f32; probabilities, relative to
// the largest so far, are rounded to bf16 before they meet v.

#include "belay/base/parallel.h"
#include "belay/device/cpu/attention/kernels.h"
#include "belay/device/key_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "belay/device/cpu/attention/forward_bf16.cc"
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX2 | HWY_AVX3_DL)
#include <hwy/foreach_target.h>

// The order matters: gemm finds the products of pairs.
#include "belay/device/cpu/attention/pairs-inl.h"

#include "belay/device/cpu/attention/gemm-inl.h"
#include "belay/device/cpu/attention/softmax-inl.h"

#if HWY_TARGET == HWY_AVX3
HWY_BEFORE_NAMESPACE();
namespace belay::attention::HWY_NAMESPACE {

HWY_NOINLINE void forward_bf16_tile(const AttentionForwardArgs& args, std::int64_t batch,
                                    std::int64_t head, std::int64_t tile, float* scratch_base) {
  const AttentionShape& s = args.shape;
  const std::int64_t dim = s.head_dim;
  const std::int64_t stride = padded(dim);
  const std::int64_t kv_column = head / (s.heads / s.kv_heads) * dim;
  const float factor = s.scale * 0x1.715476p0F;  // log2(e)
  const KeyRows key_rows(args, batch);
  const QueryTile queries(s, args.doc_begin, batch, tile, key_rows.count());
  const ForwardPairScratch scratch(scratch_base, dim);
  const FloatTag tag;
  const PairTag pairs;

  const std::int64_t row = batch * s.q_len + queries.first;
  copy_rows(args.q.row<Bf16>(row) + head * dim, args.q.stride, queries.count, queries.columns(),
            dim, scratch.k, stride);
  transpose(scratch.k, stride / 2, queries.columns(), stride / 2, scratch.q, kTile);
  Softmax softmax;
  start_softmax(softmax, scratch.out, stride * kTile);

  queries.for_each_key_tile([&](const KeyTile& keys) HWY_ATTR {
    const std::int64_t columns = keys.last - keys.first;
    const std::int64_t even = (keys.count + 1) / 2 * 2;
    key_rows.for_each_run(keys.begin, keys.count,
                          [&](std::int64_t at, std::int64_t key_row, std::int64_t run) HWY_ATTR {
                            const std::int64_t to = at * stride / 2;
                            const std::int64_t v_rows = at + run == keys.count ? even - at : run;
                            copy_rows(args.k.row<Bf16>(key_row) + kv_column, args.k.stride, run,
                                      run, dim, scratch.k + to, stride);
                            copy_rows(args.v.row<Bf16>(key_row) + kv_column, args.v.stride, run,
                                      v_rows, dim, scratch.v + to, stride);
                          });
    pair_rows(scratch.v, even, stride, scratch.v_pairs);
    gemm(Left<std::uint32_t>{scratch.k, stride / 2, 1},
         Right<std::uint32_t>{scratch.q + keys.first, kTile},
         {scratch.scores + keys.first, kTile, false}, keys.count, columns, (dim + 1) / 2);
    if (keys.masked) mask_scores(queries, keys, scratch.scores);
    update_softmax(keys, factor, softmax, scratch.scores, scratch.out, dim,
                   [&](std::int64_t column, Floats factors, Floats offset) HWY_ATTR {
                     const float* score = scratch.scores + column;
                     std::uint32_t* p = scratch.p + column;
                     Floats sum = hn::Zero(tag);
                     std::int64_t j = 0;
                     for (; j + 2 <= keys.count; j += 2, score += 2 * kTile, p += kTile) {
                       const Floats p0 = exp2(hn::MulSub(hn::Load(tag, score), factors, offset));
                       const Floats p1 =
                           exp2(hn::MulSub(hn::Load(tag, score + kTile), factors, offset));
                       hn::Store(interleave(round_both(p0, p1)), pairs, p);
                       sum = hn::Add(sum, hn::Add(p0, p1));
                     }
                     if (j < keys.count) {
                       const Floats p0 = exp2(hn::MulSub(hn::Load(tag, score), factors, offset));
                       hn::Store(interleave(round_both(p0, hn::Zero(tag))), pairs, p);
                       sum = hn::Add(sum, p0);
                     }
                     return sum;
                   });
    gemm(Left<std::uint32_t>{scratch.v_pairs, 1, stride},
         Right<std::uint32_t>{scratch.p + keys.first, kTile},
         {scratch.out + keys.first, kTile, true}, dim, columns, even / 2);
  });

  float* lse = args.lse.empty()
                   ? nullptr
                   : args.lse.as<float>() + (batch * s.heads + head) * s.q_len + queries.first;
  finish_softmax(queries, s.scale, softmax, scratch.out, dim, lse);
  transpose(scratch.out, kTile, stride, queries.columns(), scratch.staging, stride);
  const std::int64_t width = s.heads * dim;
  unpack_rows(scratch.staging, stride, queries.count, dim, 1.0F,
              args.dst.as<Bf16>() + row * width + head * dim, width);
}

}  // namespace belay::attention::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

#if HWY_ONCE
namespace belay::attention {

std::size_t forward_bf16_workspace(const AttentionForwardArgs& args) {
  return static_cast<std::size_t>(thread_count() *
                                  ForwardPairScratch::floats(args.shape.head_dim)) *
         sizeof(float);
}

void run_forward_bf16(const AttentionForwardArgs& args, KernelContext& context) {
  const AttentionShape& s = args.shape;
  BELAY_CHECK(has_pair_products());
  BELAY_CHECK(context.workspace_bytes >= forward_bf16_workspace(args));
#if HWY_TARGETS & HWY_AVX3
  auto* scratch = reinterpret_cast<float*>(context.workspace);
  const std::int64_t tiles = pieces_of(s.q_len, kTile);
  parallel_for(s.batch * s.heads * tiles, [&](std::int64_t index) {
    const std::int64_t head = index / tiles;
    N_AVX3::forward_bf16_tile(args, head / s.heads, head % s.heads, tiles - 1 - index % tiles,
                              scratch + thread_index() * ForwardPairScratch::floats(s.head_dim));
  });
#endif
}

}  // namespace belay::attention
#endif
