#pragma once
// Model FLOPs: what the mathematics needs, recomputation never counted. One multiply-add is 2
// FLOPs; a training step is 3 forwards. Matrix products: every weight matrix and the output head,
// not the embedding look-up. Attention counts the causal half as seq_len / 2 keys per query.

#include <cstdint>

#include "belay/model/model_config.h"

namespace belay {

// Multiply-adds of the weight matrices per token (= their parameters).
std::int64_t matmul_parameters(const ModelConfig& config);

// Training FLOPs per token at a sequence length:
//   6 matmul_parameters + 6 layers (heads head_dim) seq_len
double training_flops_per_token(const ModelConfig& config, std::int64_t seq_len);

}  // namespace belay
