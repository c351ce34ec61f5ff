#include "belay/model/transformer.h"

#include "belay/model/rope.h"

namespace belay {
namespace {

constexpr std::uint32_t kEmbeddingStream = 0;

}  // namespace

Transformer::Transformer(Lane& lane, const ModelConfig& config, const ParameterTable& table,
                         const TransformerOptions& options)
    : config_(config),
      embedding_(table.find("embedding.weight")),
      positions_(table.find("positions.weight")),
      final_norm_(Norm::find(table, config, "final_norm")) {
  Tensor rope;
  if (!config.learned_positions()) {
    const std::vector<float> host = rope_table(config);
    rope_memory_ = lane.device().allocate(host.size() * sizeof(float), "rotary table");
    rope = {rope_memory_->address(), DType::f32, {config.seq_len, config.head_dim}};
    ParameterStore::write(lane, rope, host);
  }
  blocks_.reserve(static_cast<std::size_t>(config.layers));
  for (int layer = 0; layer < static_cast<int>(config.layers); ++layer) {
    blocks_.emplace_back(config, table, layer, rope);
  }
  head_.weight = config.tie_embeddings ? embedding_ : table.find("head.weight");
  head_.block_rows = options.head_block_rows;
  head_.z_loss = static_cast<float>(options.z_loss);
}

void Transformer::embed(const Pass& pass, const Tensor& dst) const {
  EmbeddingForwardArgs args;
  args.tokens = pass.inputs.tokens;
  args.table = pass.parameters.weight(embedding_);
  if (positions_ >= 0) {
    args.positions = pass.inputs.positions;
    args.positions_table = pass.parameters.weight(positions_);
  }
  args.dst = dst;
  launch(pass.lane, args);
}

void Transformer::hidden_states(const Pass& pass, Activations& kept) const {
  const Shape shape{pass.inputs.token_count(), config_.hidden};
  kept.blocks.resize(blocks_.size());
  Block::Stream stream{pass.keep(shape), {}};
  pass.use(kFront);
  embed(pass, stream.residual);
  if (pass.train && config_.dropout > 0.0) {
    apply_dropout(pass, config_.dropout, kEmbeddingStream, stream.residual, stream.residual);
  }
  // Each layer's second output is read by the next norm only: two buffers in turn are enough.
  const ArenaScope scope(pass.scratch);
  const std::array<Tensor, 2> deltas{pass.temporary(shape), pass.temporary(shape)};
  for (std::size_t layer = 0; layer < blocks_.size(); ++layer) {
    pass.use(unit_of(layer));
    stream = blocks_[layer].forward(pass, stream, deltas[layer % 2], kept.blocks[layer]);
  }
  pass.use(unit_of(blocks_.size()));  // for the head too
  kept.normed = pass.keep(shape);
  kept.final_norm = final_norm_.forward(pass, stream.residual, stream.delta, kept.normed);
}

void Transformer::forward(const Pass& pass, Activations& kept, const Tensor& nll) const {
  pass.lane.set_tag("forward");
  hidden_states(pass, kept);
  kept.d_normed = pass.train ? pass.keep(kept.normed.shape) : Tensor{};
  head_.loss(pass, kept.normed, nll, kept.d_normed);
}

void Transformer::all_logits(const Pass& pass, Activations& kept, const Tensor& logits) const {
  pass.lane.set_tag("forward");
  hidden_states(pass, kept);
  head_.logits(pass, kept.normed, logits);
}

void Transformer::backward(const Pass& pass, const Activations& kept) const {
  pass.lane.set_tag("backward");
  if (head_.weight != embedding_) pass.gradient_ready(head_.weight);
  const ArenaScope scope(pass.scratch);
  const Tensor d_x = pass.temporary(kept.normed.shape);
  final_norm_.backward(pass, kept.final_norm, kept.d_normed, d_x, false);
  for (std::size_t layer = blocks_.size(); layer-- > 0;) {
    pass.use(unit_of(layer));
    blocks_[layer].backward(pass, kept.blocks[layer], d_x);
  }
  if (pass.train && config_.dropout > 0.0) {
    apply_dropout(pass, config_.dropout, kEmbeddingStream, d_x, d_x);
  }
  EmbeddingBackwardArgs args;
  args.tokens = pass.inputs.tokens;
  args.d_dst = d_x;
  args.d_table = pass.parameters.grad(embedding_);
  if (positions_ >= 0) {
    args.positions = pass.inputs.positions;
    args.d_positions_table = pass.parameters.grad(positions_);
  }
  launch(pass.lane, args);
  pass.gradient_ready(embedding_);
  pass.gradient_ready(positions_);
}

void Transformer::decode(const Pass& pass, const KvCache& cache, const CacheAccess& access,
                         const Tensor& logits) const {
  pass.lane.set_tag("decode");
  const std::int64_t tokens = pass.inputs.token_count();
  const Shape shape{tokens, config_.hidden};
  const std::size_t saved_mark = pass.saved.mark();
  const ArenaScope scope(pass.scratch);
  Block::Stream stream{pass.temporary(shape), {}};
  embed(pass, stream.residual);
  const std::array<Tensor, 2> deltas{pass.temporary(shape), pass.temporary(shape)};
  for (std::size_t layer = 0; layer < blocks_.size(); ++layer) {
    const ArenaScope layer_scope(pass.scratch);
    stream = blocks_[layer].decode(pass, stream, deltas[layer % 2], cache.pool(layer), access);
  }
  const Tensor normed = pass.temporary(shape);
  final_norm_.forward(pass, stream.residual, stream.delta, normed);
  head_.logits(pass, normed.rows(tokens - logits.dim(0), tokens), logits);
  pass.saved.release(saved_mark);
}

}  // namespace belay
