#pragma once
// What a decoder-only transformer is made of. A family sets the defaults; a Hugging Face
// config.json or the [model] section of a run's configuration fills in the numbers.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "belay/device/ops/activation.h"
#include "belay/device/ops/norm.h"

namespace belay {

enum class Family : std::uint8_t { gpt2, llama, qwen2 };

std::string_view name_of(Family family);
Family parse_family(std::string_view name);  // Error(usage) with the nearest valid names

enum class RopeScaling : std::uint8_t { none, linear, dynamic, yarn, llama3 };

std::string_view name_of(RopeScaling scaling);

// Rotary position embedding; the keys are those of Hugging Face's rope_scaling. Angles are f32.
struct RopeConfig {
  double theta = 10000.0;
  RopeScaling scaling = RopeScaling::none;
  double factor = 1.0;
  double low_freq_factor = 1.0;       // llama3
  double high_freq_factor = 4.0;      // llama3
  std::int64_t original_seq_len = 0;  // llama3, yarn, dynamic; 0: seq_len
  double beta_fast = 32.0;            // yarn
  double beta_slow = 1.0;             // yarn
  double attention_factor = 0.0;      // yarn; 0: 0.1 ln(factor) + 1
};

struct ModelConfig {
  Family family = Family::llama;
  std::int64_t layers = 0;
  std::int64_t hidden = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;  // 0: heads
  std::int64_t head_dim = 0;  // 0: hidden / heads
  std::int64_t ffn = 0;       // width of the inner feed-forward layer; 0: the family's usual
  std::int64_t vocab = 0;     // 0: from the tokenizer
  std::int64_t seq_len = 0;   // longest sequence; rows of the position table for learned positions
  bool tie_embeddings = false;
  double norm_eps = 1e-5;
  RopeConfig rope;
  double dropout = 0.0;  // on the embedding and on both residual branches
  double init_std =
      0.02;  // residual projections: init_std / sqrt(2 layers) (GPT-2 paper, sec. 2.3)

  // The family's defaults are what its published models have; a family's config.json cannot say
  // every other combination, and what it cannot say is not trained (require_hf_config).
  Activation activation = Activation::silu;
  bool attention_bias = false;      // q, k, v
  bool attention_out_bias = false;  // output projection
  bool mlp_bias = false;

  [[nodiscard]] NormKind norm() const {
    return family == Family::gpt2 ? NormKind::layer : NormKind::rms;
  }
  [[nodiscard]] bool gated() const { return family != Family::gpt2; }
  [[nodiscard]] bool learned_positions() const { return family == Family::gpt2; }
  [[nodiscard]] std::int64_t qkv_width() const { return (heads + 2 * kv_heads) * head_dim; }
};

// Family defaults (tied embeddings, biases, activation, eps, theta) with the sizes left at 0.
ModelConfig family_defaults(Family family);

// Fills in derived sizes (kv_heads, head_dim, ffn) and refuses what cannot be: Error(usage) that
// names both numbers and the valid ones. `vocab` and every size must be set afterwards.
void finish_config(ModelConfig& config);

// Named configurations for benchmarks: gpt2-124m, gpt2-tiny, llama-8m, ...
ModelConfig preset_config(std::string_view name);
std::vector<std::string_view> preset_names();

}  // namespace belay
