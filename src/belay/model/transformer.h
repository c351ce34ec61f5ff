#pragma once
// A decoder-only transformer as an ordered list of layers.

#include <memory>
#include <vector>

#include "belay/model/block.h"
#include "belay/model/head.h"

namespace belay {

struct TransformerOptions {
  std::int64_t head_block_rows = 512;
  double z_loss = 0.0;
};

class Transformer {
 public:
  // Writes the rotary table to the device. `config` must be finished and outlive the model.
  Transformer(Lane& lane, const ModelConfig& config, const ParameterTable& table,
              const TransformerOptions& options);

  [[nodiscard]] const ModelConfig& config() const { return config_; }

  // Activations of one micro-batch, kept between forward and backward. Reusable: a warm one makes
  // no heap allocation.
  struct Activations {
    std::vector<Block::Saved> blocks;
    Norm::Saved final_norm;
    Tensor normed;    // [tokens, hidden]
    Tensor d_normed;  // [tokens, hidden]: filled by the fused head
  };

  // Losses of the micro-batch into nll [tokens] f32, kept activations, and (when training) the
  // head's part of the gradient. Tags calls "forward" and "backward".
  void forward(const Pass& pass, Activations& kept, const Tensor& nll) const;
  // Adds the gradient of the sum of the losses to every parameter's gradient.
  void backward(const Pass& pass, const Activations& kept) const;

  // Next-token logits behind the last logits.dim(0) tokens of the pass, [those, vocab]. pass.inputs
  // holds the new tokens, for which the cache has room, and their positions; their keys and values
  // go into the cache.
  void decode(const Pass& pass, const KvCache& cache, const CacheAccess& access,
              const Tensor& logits) const;

  // Logits [tokens, vocab] f32 of a whole micro-batch (no cache), for checks.
  void all_logits(const Pass& pass, Activations& kept, const Tensor& logits) const;

 private:
  void embed(const Pass& pass, const Tensor& dst) const;
  void hidden_states(const Pass& pass, Activations& kept) const;
  // Units of the shard map.
  static constexpr int kFront = 0;
  static int unit_of(std::size_t layer) { return static_cast<int>(layer) + 1; }

  const ModelConfig& config_;
  std::unique_ptr<DeviceMemory> rope_memory_;
  int embedding_ = -1;
  int positions_ = -1;
  std::vector<Block> blocks_;
  Norm final_norm_;
  Head head_;
};

}  // namespace belay
