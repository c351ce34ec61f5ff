#include "belay/model/model_fields.h"

namespace belay {
namespace {

// In the order of Family, RopeScaling and Activation.
constexpr std::string_view kFamilies[] = {"gpt2", "llama", "qwen2"};
constexpr std::string_view kScalings[] = {"none", "linear", "dynamic", "yarn", "llama3"};
constexpr std::string_view kActivations[] = {"gelu_tanh", "gelu_erf", "silu"};

}  // namespace

std::span<const config::Field> model_fields() {
  using config::at_least;
  using config::between;
  using config::field;
  static const config::Field kFields[] = {
      field<&ModelConfig::family>("family", "architecture; sets the defaults of the other keys",
                                  config::one_of(kFamilies)),
      field<&ModelConfig::layers>("layers", "transformer blocks", between(0, 4096)),
      field<&ModelConfig::hidden>("hidden", "width of the residual stream", between(0, 1 << 20)),
      field<&ModelConfig::heads>("heads", "attention heads", between(0, 1 << 16)),
      field<&ModelConfig::kv_heads>("kv_heads", "key and value heads; 0: heads",
                                    between(0, 1 << 16)),
      field<&ModelConfig::head_dim>("head_dim", "width of a head; 0: hidden / heads",
                                    between(0, 1 << 16)),
      field<&ModelConfig::ffn>("ffn",
                               "inner width of the feed-forward layer; 0: the family's usual",
                               between(0, 1 << 22)),
      field<&ModelConfig::vocab>("vocab", "token ids; 0: from the tokenizer of the data",
                                 between(0, 1 << 30)),
      field<&ModelConfig::seq_len>("seq_len", "tokens per row", between(0, 1 << 24)),
      field<&ModelConfig::tie_embeddings>("tie_embeddings", "head and embedding share one matrix"),
      field<&ModelConfig::norm_eps>("norm_eps", "added to the variance in norms",
                                    config::positive()),
      field<&ModelConfig::dropout>("dropout", "on the embedding and both residual branches",
                                   config::below(0, 1)),
      field<&ModelConfig::init_std>("init_std", "standard deviation of initial weights",
                                    at_least(0)),
      field<&ModelConfig::activation>("activation", "of the feed-forward layer",
                                      config::one_of(kActivations)),
      field<&ModelConfig::attention_bias>("attention_bias", "biases of query, key and value"),
      field<&ModelConfig::attention_out_bias>("attention_out_bias",
                                              "bias of the attention's output projection"),
      field<&ModelConfig::mlp_bias>("mlp_bias", "biases of the feed-forward layer"),
      field<&ModelConfig::rope, &RopeConfig::theta>("rope_theta", "base of the rotary angles",
                                                    config::positive()),
      field<&ModelConfig::rope, &RopeConfig::scaling>(
          "rope_scaling", "stretching of rotary positions", config::one_of(kScalings)),
      field<&ModelConfig::rope, &RopeConfig::factor>("rope_factor", "of rope_scaling",
                                                     config::positive()),
      field<&ModelConfig::rope, &RopeConfig::low_freq_factor>("rope_low_freq_factor", "llama3 only",
                                                              config::positive()),
      field<&ModelConfig::rope, &RopeConfig::high_freq_factor>("rope_high_freq_factor",
                                                               "llama3 only", config::positive()),
      field<&ModelConfig::rope, &RopeConfig::original_seq_len>(
          "rope_original_seq_len", "length before stretching; 0: seq_len", between(0, 1 << 24)),
      field<&ModelConfig::rope, &RopeConfig::beta_fast>("rope_beta_fast", "yarn only",
                                                        config::positive()),
      field<&ModelConfig::rope, &RopeConfig::beta_slow>("rope_beta_slow", "yarn only",
                                                        config::positive()),
      field<&ModelConfig::rope, &RopeConfig::attention_factor>(
          "rope_attention_factor", "yarn only; 0: 0.1 ln(rope_factor) + 1", at_least(0)),
  };
  return kFields;
}

}  // namespace belay
