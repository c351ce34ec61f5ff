// Attention forward: one piece per (batch, head, query tile), online softmax over key tiles
// (Dao et al., arXiv:2205.14135, algorithm 1; Milakov & Gimelshein, arXiv:1805.02867).

#include <cfloat>
#include <cmath>

#include "belay/base/parallel.h"
#include "belay/device/cpu/attention/tiles.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "belay/device/cpu/attention/forward.cc"
#include "belay/device/cpu/attention/targets.h"

#include <hwy/foreach_target.h>

#include "belay/device/cpu/attention/gemm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace belay::attention::HWY_NAMESPACE {

// Running softmax of the queries of a tile. `largest` is in units of raw scores and starts at the
// lowest finite value rather than -infinity, so that a query that has seen no key yet never gives
// infinity - infinity.
struct Softmax {
  alignas(64) float largest[kTile];
  alignas(64) float sum[kTile];
};

HWY_INLINE void mask_scores(const QueryTile& queries, const KeyTile& keys, float* scores) {
  const FloatTag tag;
  const hn::RebindToSigned<FloatTag> whole;
  const Floats hidden = hn::Set(tag, -HUGE_VALF);
  for (std::int64_t column = keys.first; column < keys.last; column += kLanes) {
    const auto at = static_cast<std::size_t>(column);
    const auto begin = hn::Load(whole, &queries.begin[at]);
    const auto last = hn::Load(whole, &queries.last[at]);
    for (std::int64_t j = 0; j < keys.count; ++j) {
      const auto key = hn::Set(whole, static_cast<std::int32_t>(keys.begin + j));
      const auto invisible = hn::Or(hn::Gt(begin, key), hn::Gt(key, last));
      float* score = scores + j * kTile + column;
      hn::Store(hn::IfThenElse(hn::RebindMask(tag, invisible), hidden, hn::Load(tag, score)), tag,
                score);
    }
  }
}

// Turns scores into probabilities relative to the largest score so far, and rescales what was
// accumulated relative to the earlier one. factor = scale * log2(e).
HWY_INLINE void update_softmax(const KeyTile& keys, float factor, Softmax& softmax, float* scores,
                               float* out, std::int64_t head_dim) {
  const FloatTag tag;
  const Floats factors = hn::Set(tag, factor);
  for (std::int64_t column = keys.first; column < keys.last; column += kLanes) {
    float* score = scores + column;
    const Floats before = hn::Load(tag, softmax.largest + column);
    Floats largest[4] = {before, before, before, before};
    std::int64_t j = 0;
    for (; j + 4 <= keys.count; j += 4) {
#pragma GCC unroll 4
      for (std::int64_t i = 0; i < 4; ++i) {
        largest[i] = hn::Max(largest[i], hn::Load(tag, score + (j + i) * kTile));
      }
    }
    for (; j < keys.count; ++j) {
      largest[0] = hn::Max(largest[0], hn::Load(tag, score + j * kTile));
    }
    const Floats after = hn::Max(hn::Max(largest[0], largest[1]), hn::Max(largest[2], largest[3]));
    const Floats offset = hn::Mul(after, factors);
    Floats sum = hn::Zero(tag);
    for (j = 0; j < keys.count; ++j) {
      const Floats p = exp2(hn::MulSub(hn::Load(tag, score + j * kTile), factors, offset));
      hn::Store(p, tag, score + j * kTile);
      sum = hn::Add(sum, p);
    }
    const Floats rescale = exp2(hn::Mul(hn::Sub(before, after), factors));
    hn::Store(after, tag, softmax.largest + column);
    hn::Store(hn::MulAdd(hn::Load(tag, softmax.sum + column), rescale, sum), tag,
              softmax.sum + column);
    if (hn::AllTrue(tag, hn::Eq(rescale, hn::Set(tag, 1.0F)))) continue;
    for (std::int64_t d = 0; d < head_dim; ++d) {
      float* at = out + d * kTile + column;
      hn::Store(hn::Mul(hn::Load(tag, at), rescale), tag, at);
    }
  }
}

// out /= sum; lse = largest * scale + log(sum).
HWY_INLINE void finish_softmax(const QueryTile& queries, float scale, const Softmax& softmax,
                               float* out, std::int64_t head_dim, float* lse) {
  const FloatTag tag;
  for (std::int64_t column = 0; column < queries.columns(); column += kLanes) {
    const Floats inverse = hn::Div(hn::Set(tag, 1.0F), hn::Load(tag, softmax.sum + column));
    for (std::int64_t d = 0; d < head_dim; ++d) {
      float* at = out + d * kTile + column;
      hn::Store(hn::Mul(hn::Load(tag, at), inverse), tag, at);
    }
  }
  if (lse == nullptr) return;
  for (std::int64_t i = 0; i < queries.count; ++i) {
    lse[i] = softmax.largest[i] * scale + std::log(softmax.sum[i]);
  }
}

template <class T>
HWY_INLINE void forward_tile(const AttentionForwardArgs& args, std::int64_t batch,
                             std::int64_t head, std::int64_t tile, float* scratch_base) {
  const AttentionShape& s = args.shape;
  const std::int64_t dim = s.head_dim;
  const std::int64_t stride = padded(dim);
  const std::int64_t kv_column = head / (s.heads / s.kv_heads) * dim;
  const float factor = s.scale * 0x1.715476p0F;  // log2(e)
  const QueryTile queries(s, args.doc_begin, batch, tile);
  const ForwardScratch scratch(scratch_base, dim);
  const FloatTag tag;

  // k serves as staging before and after the key tiles.
  const std::int64_t row = batch * s.q_len + queries.first;
  pack_rows(args.q.row<T>(row) + head * dim, args.q.stride, queries.count, queries.columns(), dim,
            scratch.k, stride);
  transpose(scratch.k, stride, queries.columns(), stride, scratch.q, kTile);
  Softmax softmax;
  for (std::int64_t i = 0; i < kTile; i += kLanes) {
    hn::Store(hn::Set(tag, -FLT_MAX), tag, softmax.largest + i);
    hn::Store(hn::Zero(tag), tag, softmax.sum + i);
  }
  for (std::int64_t i = 0; i < stride * kTile; i += kLanes) {
    hn::Store(hn::Zero(tag), tag, scratch.out + i);
  }

  queries.for_each_key_tile([&](const KeyTile& keys) HWY_ATTR {
    const std::int64_t key_row = batch * s.kv_len + keys.begin;
    const std::int64_t columns = keys.last - keys.first;
    pack_rows(args.k.row<T>(key_row) + kv_column, args.k.stride, keys.count, keys.count, dim,
              scratch.k, stride);
    pack_rows(args.v.row<T>(key_row) + kv_column, args.v.stride, keys.count, keys.count, dim,
              scratch.v, stride);
    gemm({scratch.k, stride, 1}, {scratch.q + keys.first, kTile},
         {scratch.scores + keys.first, kTile, false}, keys.count, columns, dim);
    if (keys.masked) mask_scores(queries, keys, scratch.scores);
    update_softmax(keys, factor, softmax, scratch.scores, scratch.out, dim);
    gemm({scratch.v, 1, stride}, {scratch.scores + keys.first, kTile},
         {scratch.out + keys.first, kTile, true}, dim, columns, keys.count);
  });

  float* lse = args.lse.empty()
                   ? nullptr
                   : args.lse.as<float>() + (batch * s.heads + head) * s.q_len + queries.first;
  finish_softmax(queries, s.scale, softmax, scratch.out, dim, lse);
  transpose(scratch.out, kTile, stride, queries.columns(), scratch.k, stride);
  const std::int64_t width = s.heads * dim;
  unpack_rows(scratch.k, stride, queries.count, dim, 1.0F,
              args.dst.as<T>() + row * width + head * dim, width);
}

HWY_NOINLINE void forward_piece(const AttentionForwardArgs& args, std::int64_t batch,
                                std::int64_t head, std::int64_t tile, float* scratch) {
  if (args.q.dtype == DType::bf16) {
    forward_tile<Bf16>(args, batch, head, tile, scratch);
  } else {
    forward_tile<float>(args, batch, head, tile, scratch);
  }
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
