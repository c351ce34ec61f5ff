// Attention backward for bf16 storage on processors with avx512_bf16: as backward.cc, with all five
// products on bf16 pairs. Probabilities and score gradients are rounded to bf16 where they enter a
// product; everything is summed in f32.

#include "belay/base/parallel.h"
#include "belay/device/cpu/attention/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "belay/device/cpu/attention/backward_bf16.cc"
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX2 | HWY_AVX3_DL)
#include <hwy/foreach_target.h>

// The order matters: gemm finds the products of pairs.
#include "belay/device/cpu/attention/pairs-inl.h"

#include "belay/device/cpu/attention/backward-inl.h"
#include "belay/device/cpu/attention/gemm-inl.h"

#if HWY_TARGET == HWY_AVX3
HWY_BEFORE_NAMESPACE();
namespace belay::attention::HWY_NAMESPACE {

using PairLeft = Left<std::uint32_t>;
using PairRight = Right<std::uint32_t>;

HWY_INLINE std::uint32_t* pairs_of(float* buffer) {
  return reinterpret_cast<std::uint32_t*>(buffer);
}

HWY_INLINE void load_query_pairs(const AttentionBackwardArgs& args, std::int64_t batch,
                                 std::int64_t head, const QueryTile& queries,
                                 const BackwardPairScratch& scratch, RowStatistics& statistics) {
  const AttentionShape& s = args.shape;
  const std::int64_t dim = s.head_dim;
  const std::int64_t stride = padded(dim);
  const std::int64_t width = s.heads * dim;
  const std::int64_t row = batch * s.q_len + queries.first;
  const std::int64_t rows = queries.columns();
  row_statistics_of<Bf16>(args, batch, head, queries, statistics);
  copy_rows(args.q.row<Bf16>(row) + head * dim, args.q.stride, queries.count, rows, dim,
            scratch.rows, stride);
  transpose(scratch.rows, stride / 2, rows, stride / 2, scratch.q_t, kTile);
  pair_rows(scratch.rows, rows, stride, scratch.q_pairs);
  copy_rows(args.d_dst.as<Bf16>() + row * width + head * dim, width, queries.count, rows, dim,
            scratch.rows, stride);
  transpose(scratch.rows, stride / 2, rows, stride / 2, scratch.d_out_t, kTile);
  pair_rows(scratch.rows, rows, stride, scratch.d_out_pairs);
}

// As softmax_gradient; p and d_s leave as bf16 rows [key][query], d_s as pairs of keys too. An odd
// count of keys is completed by a row of zeros.
template <bool kMasked>
HWY_INLINE void softmax_gradient_pairs(const QueryTile& queries, const KeyTile& keys, float factor,
                                       const RowStatistics& rows,
                                       const BackwardPairScratch& scratch) {
  const FloatTag tag;
  const PairTag pairs;
  const hn::Half<PairTag> half;
  const auto at = [&](std::int64_t key, std::int64_t column) { return key * kTile + column; };
  for (std::int64_t column = keys.first; column < keys.last; column += kLanes) {
    const SoftmaxGradient<kMasked> gradient(queries, keys, factor, rows, column);
    for (std::int64_t j = 0; j < keys.count; j += 2) {
      Floats p0 = hn::Load(tag, scratch.p + at(j, column));
      Floats d_s0 = hn::Load(tag, scratch.d_s + at(j, column));
      gradient.apply(j, p0, d_s0);
      Floats p1 = hn::Zero(tag);
      Floats d_s1 = hn::Zero(tag);
      if (j + 1 < keys.count) {
        p1 = hn::Load(tag, scratch.p + at(j + 1, column));
        d_s1 = hn::Load(tag, scratch.d_s + at(j + 1, column));
        gradient.apply(j + 1, p1, d_s1);
      }
      const Pairs p = round_both(p0, p1);
      const Pairs d_s = round_both(d_s0, d_s1);
      hn::Store(hn::LowerHalf(half, p), half, scratch.p_rows + at(j, column) / 2);
      hn::Store(hn::UpperHalf(half, p), half, scratch.p_rows + at(j + 1, column) / 2);
      hn::Store(hn::LowerHalf(half, d_s), half, scratch.d_s_rows + at(j, column) / 2);
      hn::Store(hn::UpperHalf(half, d_s), half, scratch.d_s_rows + at(j + 1, column) / 2);
      hn::Store(interleave(d_s), pairs, scratch.d_s_pairs + at(j / 2, column));
    }
  }
}

HWY_INLINE void backward_bf16_tile(const AttentionBackwardArgs& args, std::int64_t batch,
                                   std::int64_t head, std::int64_t tile,
                                   const BackwardPairScratch& scratch, const ShareBuffers& all) {
  const AttentionShape& s = args.shape;
  const std::int64_t dim = s.head_dim;
  const std::int64_t stride = padded(dim);
  const float factor = s.scale * 0x1.715476p0F;  // log2(e)
  const QueryTile queries(s, args.doc_begin, batch, tile, s.kv_len);
  const FloatTag tag;
  RowStatistics statistics;
  load_query_pairs(args, batch, head, queries, scratch, statistics);
  for (std::int64_t i = 0; i < stride * kTile; i += kLanes) {
    hn::Store(hn::Zero(tag), tag, scratch.d_q_t + i);
  }

  queries.for_each_key_tile([&](const KeyTile& keys) HWY_ATTR {
    const std::int64_t columns = keys.last - keys.first;
    const std::int64_t at = keys.begin * stride;
    const std::uint32_t* k = pairs_of(all.k) + at / 2;
    const std::uint32_t* v = pairs_of(all.v) + at / 2;
    pair_rows(k, keys.count, stride, scratch.k_pairs);
    gemm(PairLeft{k, stride / 2, 1}, PairRight{scratch.q_t + keys.first, kTile},
         {scratch.p + keys.first, kTile, false}, keys.count, columns, (dim + 1) / 2);
    gemm(PairLeft{v, stride / 2, 1}, PairRight{scratch.d_out_t + keys.first, kTile},
         {scratch.d_s + keys.first, kTile, false}, keys.count, columns, (dim + 1) / 2);
    if (keys.masked) {
      softmax_gradient_pairs<true>(queries, keys, factor, statistics, scratch);
    } else {
      softmax_gradient_pairs<false>(queries, keys, factor, statistics, scratch);
    }
    const std::int64_t first_pair = keys.first / 2;
    gemm(PairLeft{scratch.p_rows + first_pair, kTile / 2, 1},
         PairRight{scratch.d_out_pairs + first_pair * stride, stride}, {all.d_v + at, stride, true},
         keys.count, stride, columns / 2);
    gemm(PairLeft{scratch.d_s_rows + first_pair, kTile / 2, 1},
         PairRight{scratch.q_pairs + first_pair * stride, stride}, {all.d_k + at, stride, true},
         keys.count, stride, columns / 2);
    gemm(PairLeft{scratch.k_pairs, 1, stride}, PairRight{scratch.d_s_pairs + keys.first, kTile},
         {scratch.d_q_t + keys.first, kTile, true}, dim, columns, (keys.count + 1) / 2);
  });

  transpose(scratch.d_q_t, kTile, stride, queries.columns(), scratch.staging, stride);
  unpack_rows(scratch.staging, stride, queries.count, dim, s.scale,
              args.d_q.row<Bf16>(batch * s.q_len + queries.first) + head * dim, args.d_q.stride);
}

HWY_NOINLINE void pack_key_pairs(const AttentionBackwardArgs& args, std::int64_t batch,
                                 std::int64_t kv_head, std::int64_t first, std::int64_t count,
                                 const ShareBuffers& buffers) {
  const std::int64_t dim = args.shape.head_dim;
  const std::int64_t stride = padded(dim);
  const std::int64_t row = batch * args.shape.kv_len + first;
  const std::int64_t to = first * stride / 2;
  copy_rows(args.k.row<Bf16>(row) + kv_head * dim, args.k.stride, count, count, dim,
            pairs_of(buffers.k) + to, stride);
  copy_rows(args.v.row<Bf16>(row) + kv_head * dim, args.v.stride, count, count, dim,
            pairs_of(buffers.v) + to, stride);
}

HWY_NOINLINE void backward_bf16_share(const AttentionBackwardArgs& args, const BackwardSplit& split,
                                      std::int64_t batch, std::int64_t kv_head, std::int64_t share,
                                      float* scratch_base, const ShareBuffers& buffers) {
  const BackwardPairScratch scratch(scratch_base, args.shape.head_dim);
  for (std::int64_t item = share; item < split.items; item += split.shares) {
    backward_bf16_tile(args, batch, kv_head * split.group + item / split.tiles, item % split.tiles,
                       scratch, buffers);
  }
}

}  // namespace belay::attention::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

#if HWY_ONCE
namespace belay::attention {

std::size_t backward_bf16_workspace(const AttentionBackwardArgs& args) {
  return split_workspace(args, BackwardPairScratch::floats(args.shape.head_dim));
}

void run_backward_bf16(const AttentionBackwardArgs& args, KernelContext& context) {
  BELAY_CHECK(has_pair_products());
#if HWY_TARGETS & HWY_AVX3
  run_split(args, context, BackwardPairScratch::floats(args.shape.head_dim), N_AVX3::pack_key_pairs,
            N_AVX3::backward_bf16_share);
#endif
}

}  // namespace belay::attention
#endif
