#include "belay/model/flops.h"

namespace belay {

std::int64_t matmul_parameters(const ModelConfig& config) {
  const std::int64_t q_width = config.heads * config.head_dim;
  const std::int64_t attention = config.hidden * (config.qkv_width() + q_width);
  const std::int64_t ffn = config.hidden * config.ffn * (config.gated() ? 3 : 2);
  return config.layers * (attention + ffn) + config.vocab * config.hidden;
}

double training_flops_per_token(const ModelConfig& config, std::int64_t seq_len) {
  const auto attention = static_cast<double>(config.layers * config.heads * config.head_dim);
  return 6.0 * static_cast<double>(matmul_parameters(config)) +
         6.0 * attention * static_cast<double>(seq_len);
}

}  // namespace belay
