// Attention by whole matrices: for every head the scores Q K^T, a masked softmax over them, and the
// product with V; the probabilities stay for the backward pass.

#include "belay/device/plain/workbench.h"

namespace belay::plain {
namespace {

struct Products {
  Lane* lane;
  AttentionShape shape;

  // For every head h of every row: dst[h] = op(a[h]) op(b[h]) (+ dst[h]). A matrix of which there
  // are only kv_heads serves a whole group.
  void operator()(const Tensor& a, const Tensor& b, const Tensor& dst, bool transpose_a,
                  bool transpose_b) const {
    const std::int64_t group = shape.heads / shape.kv_heads;
    for (std::int64_t head = 0; head < shape.batch * shape.heads; ++head) {
      MatmulArgs args;
      args.a = part(a, head);
      args.b = part(b, head);
      args.dst = part(dst, head);
      args.transpose_a = transpose_a;
      args.transpose_b = transpose_b;
      args.accumulate = shared(dst) && head % group != 0;
      launch(*lane, args);
    }
    lane->wait();
  }

  // Matrices [count, length, width] as one per head or one per group.
  [[nodiscard]] bool shared(const Tensor& matrices) const {
    return matrices.dim(0) != shape.batch * shape.heads;
  }
  [[nodiscard]] Tensor part(const Tensor& matrices, std::int64_t head) const {
    const std::int64_t index = shared(matrices) ? head / (shape.heads / shape.kv_heads) : head;
    return matrices.rows(index, index + 1).reshaped({matrices.dim(1), matrices.dim(2)});
  }
};

ScoreShape score_shape(const AttentionShape& shape, const Tensor& doc_begin) {
  return {shape.heads, shape.q_len, shape.kv_len,
          doc_begin.empty() ? nullptr : doc_begin.as<std::int32_t>()};
}

struct Heads {
  Tensor q;  // [batch * heads, q_len, head_dim]
  Tensor k;  // [batch * kv_heads, kv_len, head_dim]
  Tensor v;
};

Heads make_heads(Workbench& work, const AttentionShape& s, DType dtype) {
  const Shape kv{s.batch * s.kv_heads, s.kv_len, s.head_dim};
  return {work.scratch(dtype, {s.batch * s.heads, s.q_len, s.head_dim}), work.scratch(dtype, kv),
          work.scratch(dtype, kv)};
}

template <class Args>
void fill_heads(const Args& args, const Heads& heads) {
  split_heads(args.q, args.shape.q_len, args.shape.head_dim, heads.q);
  split_heads(args.k, args.shape.kv_len, args.shape.head_dim, heads.k);
  split_heads(args.v, args.shape.kv_len, args.shape.head_dim, heads.v);
}

}  // namespace

Composition compose(const Bench& bench, const AttentionForwardArgs& args) {
  BELAY_CHECK(args.block_table.empty() && args.kv_lengths.empty());
  Composition composition;
  Workbench work(bench, composition);
  const AttentionShape s = args.shape;
  const Heads heads = make_heads(work, s, args.q.dtype);
  const Tensor p = work.keep(args.q.dtype, {s.batch * s.heads, s.q_len, s.kv_len});
  const Tensor out = work.scratch(args.q.dtype, heads.q.shape);
  composition.run = [=, lane = &bench.lane] {
    const Products products{lane, s};
    fill_heads(args, heads);
    products(heads.q, heads.k, p, false, true);
    masked_softmax(score_shape(s, args.doc_begin), s.scale, all(p), args.lse.as<float>());
    products(p, heads.v, out, false, false);
    merge_heads(out, s.q_len, s.head_dim, columns(args.dst, 0, args.dst.dim(1)));
  };
  return composition;
}

Composition compose(const Bench& bench, const AttentionBackwardArgs& args) {
  Composition composition;
  Workbench work(bench, composition);
  const AttentionShape s = args.shape;
  const DType dtype = args.q.dtype;
  const Heads heads = make_heads(work, s, dtype);
  const Tensor p = work.keep(dtype, {s.batch * s.heads, s.q_len, s.kv_len});
  const Tensor d_p = work.scratch(dtype, p.shape);
  const Tensor d_out = work.scratch(dtype, heads.q.shape);
  // Groups of queries add up in f32.
  const DType sum = s.heads == s.kv_heads ? dtype : DType::f32;
  const Heads d{work.scratch(dtype, heads.q.shape), work.scratch(sum, heads.k.shape),
                work.scratch(sum, heads.v.shape)};
  composition.prepare = [=, lane = &bench.lane] {
    fill_heads(args, heads);
    Products{lane, s}(heads.q, heads.k, p, false, true);
    masked_softmax(score_shape(s, args.doc_begin), s.scale, all(p), nullptr);
  };
  composition.run = [=, lane = &bench.lane] {
    const Products products{lane, s};
    fill_heads(args, heads);
    split_heads(columns(args.d_dst, 0, args.d_dst.dim(1)), s.q_len, s.head_dim, d_out);
    products(d_out, heads.v, d_p, false, true);
    products(p, d_out, d.v, true, false);
    softmax_gradient(s.scale, all(p), all(d_p));
    products(d_p, heads.k, d.q, false, false);
    products(d_p, heads.q, d.k, true, false);
    merge_heads(d.q, s.q_len, s.head_dim, args.d_q);
    merge_heads(d.k, s.kv_len, s.head_dim, args.d_k);
    merge_heads(d.v, s.kv_len, s.head_dim, args.d_v);
  };
  return composition;
}

}  // namespace belay::plain
