#pragma once
// One transformer layer, pre-norm:
//   x1 = residual + delta;  o = out(attention(qkv(norm1(x1))))
//   x2 = x1 + o;            d = down(act(up(norm2(x2))))
// The layer hands on (x2, d); the next norm adds them, fused.

#include "belay/model/kv_cache.h"
#include "belay/model/linear.h"
#include "belay/model/norm.h"

namespace belay {

class Block {
 public:
  Block(const ModelConfig& config, const ParameterTable& table, int layer, Tensor rope_table);

  struct Saved {
    Norm::Saved norm1;
    Tensor normed1;   // [tokens, hidden]
    Tensor qkv;       // [tokens, (heads + 2 kv_heads) head_dim], rotated
    Tensor attended;  // [tokens, heads head_dim]
    Tensor lse;       // [rows, heads, seq_len] f32
    Norm::Saved norm2;
    Tensor normed2;    // [tokens, hidden]
    Tensor up;         // [tokens, ffn or 2 ffn], before the activation
    Tensor activated;  // [tokens, ffn]
  };

  struct Stream {
    Tensor residual;  // [tokens, hidden]
    Tensor delta;     // [tokens, hidden], or empty
  };

  // `delta` receives the layer's second output; it must not be stream.delta.
  Stream forward(const Pass& pass, const Stream& stream, const Tensor& delta, Saved& saved) const;
  // d_x: gradient of (residual + delta) behind the layer; becomes that in front of it, in place.
  void backward(const Pass& pass, const Saved& saved, const Tensor& d_x) const;
  // The forward pass of sequences whose earlier keys and values are in this layer's pool of the
  // cache, where the new ones go too, keys rotated; nothing kept.
  Stream decode(const Pass& pass, const Stream& stream, const Tensor& delta, const Tensor& pool,
                const CacheAccess& access) const;

 private:
  [[nodiscard]] AttentionShape attention_shape(std::int64_t rows, std::int64_t q_len,
                                               std::int64_t kv_len) const;
  void rotate(const Pass& pass, const Rows& rows, bool backward) const;
  void feed_forward(const Pass& pass, const Tensor& normed, const Tensor& up,
                    const Tensor& activated, const Tensor& delta) const;
  // Applies the mask of branch `branch` (0 attention, 1 feed-forward); the same call is its
  // gradient.
  void drop(const Pass& pass, int branch, const Tensor& src, const Tensor& dst) const;

  const ModelConfig& config_;
  int layer_;
  Tensor rope_table_;  // empty for learned positions
  Norm norm1_;
  Linear qkv_;
  Linear out_;
  Norm norm2_;
  Linear up_;
  Linear down_;
};

// Dropout of `src` into `dst` (may be the same), drawn from (seed, step, stream, global position).
void apply_dropout(const Pass& pass, double probability, std::uint32_t stream, const Tensor& src,
                   const Tensor& dst);

}  // namespace belay
