#include "belay/model/block.h"

#include <fmt/core.h>

#include <cmath>

namespace belay {

void apply_dropout(const Pass& pass, double probability, std::uint32_t stream, const Tensor& src,
                   const Tensor& dst) {
  RandomKey key = pass.key;
  key.stream = stream;
  const auto row_elements = static_cast<std::uint64_t>(pass.inputs.seq_len * src.dim(1));
  launch(pass.lane, DropoutArgs{src, dst, static_cast<float>(probability), key,
                                pass.first_row * row_elements});
}

Block::Block(const ModelConfig& config, const ParameterTable& table, int layer, Tensor rope_table)
    : config_(config), layer_(layer), rope_table_(rope_table) {
  const std::string prefix = fmt::format("layers.{}.", layer);
  norm1_ = Norm::find(table, config, prefix + "norm1");
  qkv_ = Linear::find(table, prefix + "attention.qkv");
  out_ = Linear::find(table, prefix + "attention.out");
  norm2_ = Norm::find(table, config, prefix + "norm2");
  up_ = Linear::find(table, prefix + "ffn.up");
  down_ = Linear::find(table, prefix + "ffn.down");
}

AttentionShape Block::attention_shape(std::int64_t rows, std::int64_t q_len,
                                      std::int64_t kv_len) const {
  return {rows,
          q_len,
          kv_len,
          config_.heads,
          config_.kv_heads,
          config_.head_dim,
          1.0F / std::sqrt(static_cast<float>(config_.head_dim))};
}

void Block::rotate(const Pass& pass, const Rows& rows, bool backward) const {
  if (rope_table_.empty()) return;
  launch(pass.lane,
         RotaryArgs{rows, config_.head_dim, pass.inputs.positions, rope_table_, backward});
}

void Block::drop(const Pass& pass, int branch, const Tensor& src, const Tensor& dst) const {
  const auto stream = static_cast<std::uint32_t>(1 + 2 * layer_ + branch);
  apply_dropout(pass, config_.dropout, stream, src, dst);
}

void Block::feed_forward(const Pass& pass, const Tensor& normed, const Tensor& up,
                         const Tensor& activated, const Tensor& delta) const {
  up_.forward(pass, normed, up);
  launch(pass.lane, ActivationForwardArgs{config_.activation, config_.gated(), up, activated});
  down_.forward(pass, activated, delta);
}

Block::Stream Block::forward(const Pass& pass, const Stream& stream, const Tensor& delta,
                             Saved& saved) const {
  const LayerScope layer(pass.lane, layer_);
  const std::int64_t tokens = stream.residual.dim(0);
  const std::int64_t q_width = config_.heads * config_.head_dim;
  const std::int64_t kv_width = config_.kv_heads * config_.head_dim;
  const bool dropping = pass.train && config_.dropout > 0.0;

  saved.normed1 = pass.keep({tokens, config_.hidden});
  saved.norm1 = norm1_.forward(pass, stream.residual, stream.delta, saved.normed1);
  saved.qkv = pass.keep({tokens, config_.qkv_width()});
  qkv_.forward(pass, saved.normed1, saved.qkv);
  rotate(pass, columns(saved.qkv, 0, q_width + kv_width), false);

  saved.attended = pass.keep({tokens, q_width});
  saved.lse = pass.keep(DType::f32, {pass.inputs.rows, config_.heads, pass.inputs.seq_len});
  AttentionForwardArgs attention;
  attention.shape = attention_shape(pass.inputs.rows, pass.inputs.seq_len, pass.inputs.seq_len);
  attention.q = columns(saved.qkv, 0, q_width);
  attention.k = columns(saved.qkv, q_width, q_width + kv_width);
  attention.v = columns(saved.qkv, q_width + kv_width, q_width + 2 * kv_width);
  attention.doc_begin = pass.inputs.doc_begin;
  attention.dst = saved.attended;
  attention.lse = saved.lse;
  attention.inside = pass.inside(pass.protection.softmax);
  launch(pass.lane, attention);

  const ArenaScope scope(pass.scratch);
  const Tensor attention_out = pass.temporary({tokens, config_.hidden});
  out_.forward(pass, saved.attended, attention_out);
  if (dropping) drop(pass, 0, attention_out, attention_out);

  saved.normed2 = pass.keep({tokens, config_.hidden});
  saved.norm2 = norm2_.forward(pass, saved.norm1.sum, attention_out, saved.normed2);
  saved.up = pass.keep({tokens, config_.ffn * (config_.gated() ? 2 : 1)});
  saved.activated = pass.keep({tokens, config_.ffn});
  feed_forward(pass, saved.normed2, saved.up, saved.activated, delta);
  if (dropping) drop(pass, 1, delta, delta);
  return {saved.norm2.sum, delta};
}

void Block::backward(const Pass& pass, const Saved& saved, const Tensor& d_x) const {
  const LayerScope layer(pass.lane, layer_);
  const std::int64_t tokens = d_x.dim(0);
  const std::int64_t q_width = config_.heads * config_.head_dim;
  const std::int64_t kv_width = config_.kv_heads * config_.head_dim;
  const bool dropping = pass.train && config_.dropout > 0.0;
  const auto branch_gradient = [&](int branch) {
    if (!dropping) return d_x;
    const Tensor masked = pass.temporary(d_x.shape);
    drop(pass, branch, d_x, masked);
    return masked;
  };

  {
    const ArenaScope scope(pass.scratch);
    const Tensor d_delta = branch_gradient(1);
    const Tensor d_activated = pass.temporary(saved.activated.shape);
    down_.backward(pass, saved.activated, d_delta, d_activated);
    // The pre-activations are not needed again: their gradient takes their place.
    launch(pass.lane, ActivationBackwardArgs{config_.activation, config_.gated(), saved.up,
                                             d_activated, saved.up});
    const Tensor d_normed = pass.temporary(saved.normed2.shape);
    up_.backward(pass, saved.normed2, saved.up, d_normed);
    norm2_.backward(pass, saved.norm2, d_normed, d_x, true);
  }
  {
    const ArenaScope scope(pass.scratch);
    const Tensor d_out = branch_gradient(0);
    const Tensor d_attended = pass.temporary(saved.attended.shape);
    out_.backward(pass, saved.attended, d_out, d_attended);

    const Tensor d_qkv = pass.temporary(saved.qkv.shape);
    AttentionBackwardArgs attention;
    attention.shape = attention_shape(pass.inputs.rows, pass.inputs.seq_len, pass.inputs.seq_len);
    attention.q = columns(saved.qkv, 0, q_width);
    attention.k = columns(saved.qkv, q_width, q_width + kv_width);
    attention.v = columns(saved.qkv, q_width + kv_width, q_width + 2 * kv_width);
    attention.doc_begin = pass.inputs.doc_begin;
    attention.dst = saved.attended;
    attention.lse = saved.lse;
    attention.d_dst = d_attended;
    attention.d_q = columns(d_qkv, 0, q_width);
    attention.d_k = columns(d_qkv, q_width, q_width + kv_width);
    attention.d_v = columns(d_qkv, q_width + kv_width, q_width + 2 * kv_width);
    attention.inside = pass.inside(pass.protection.softmax);
    launch(pass.lane, attention);
    rotate(pass, columns(d_qkv, 0, q_width + kv_width), true);

    const Tensor d_normed = pass.temporary({tokens, config_.hidden});
    qkv_.backward(pass, saved.normed1, d_qkv, d_normed);
    norm1_.backward(pass, saved.norm1, d_normed, d_x, true);
  }
}

Block::Stream Block::decode(const Pass& pass, const Stream& stream, const Tensor& delta,
                            const Tensor& pool, const CacheAccess& access) const {
  const LayerScope layer(pass.lane, layer_);
  const std::int64_t tokens = stream.residual.dim(0);
  const std::int64_t q_width = config_.heads * config_.head_dim;
  const std::int64_t kv_width = config_.kv_heads * config_.head_dim;

  const Tensor normed = pass.temporary({tokens, config_.hidden});
  const Norm::Saved norm1 = norm1_.forward(pass, stream.residual, stream.delta, normed);
  const Tensor qkv = pass.temporary({tokens, config_.qkv_width()});
  qkv_.forward(pass, normed, qkv);
  rotate(pass, columns(qkv, 0, q_width + kv_width), false);
  launch(pass.lane, ScatterRowsArgs{columns(qkv, q_width, config_.qkv_width()),
                                    columns(pool, 0, 2 * kv_width), access.rows});

  AttentionForwardArgs attention;
  attention.shape = attention_shape(pass.inputs.rows, pass.inputs.seq_len, access.longest);
  attention.q = columns(qkv, 0, q_width);
  attention.k = columns(pool, 0, kv_width);
  attention.v = columns(pool, kv_width, 2 * kv_width);
  attention.dst = pass.temporary({tokens, q_width});
  attention.inside = pass.inside(pass.protection.softmax);
  attention.block_table = access.block_table;
  attention.block_tokens = access.block_tokens;
  attention.kv_lengths = access.lengths;
  launch(pass.lane, attention);

  const Tensor attention_out = pass.temporary({tokens, config_.hidden});
  out_.forward(pass, attention.dst, attention_out);
  const Norm::Saved norm2 = norm2_.forward(pass, norm1.sum, attention_out, normed);
  const Tensor up = pass.temporary({tokens, config_.ffn * (config_.gated() ? 2 : 1)});
  const Tensor activated = pass.temporary({tokens, config_.ffn});
  feed_forward(pass, normed, up, activated, delta);
  return {norm2.sum, delta};
}

}  // namespace belay
