#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "belay/base/check.h"
#include "belay/snapshot/hf_config.h"

namespace belay {
namespace {

std::string_view activation_name(Activation activation) {
  switch (activation) {
    case Activation::silu:
      return "silu";
    case Activation::gelu_erf:
      return "gelu";
    case Activation::gelu_tanh:
      return "gelu_new";
  }
  return "?";
}

std::string_view torch_name(DType dtype) {
  BELAY_CHECK(dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16);
  return dtype == DType::f32 ? "float32" : dtype == DType::bf16 ? "bfloat16" : "float16";
}

// Linear scaling is the same at every length.
bool needs_original(RopeScaling scaling) {
  return scaling == RopeScaling::dynamic || scaling == RopeScaling::yarn ||
         scaling == RopeScaling::llama3;
}

std::int64_t original_length(const ModelConfig& config) {
  return config.rope.original_seq_len > 0 ? config.rope.original_seq_len : config.seq_len;
}

nlohmann::ordered_json rope_scaling(const ModelConfig& config) {
  const RopeConfig& rope = config.rope;
  if (rope.scaling == RopeScaling::none) return nullptr;
  nlohmann::ordered_json json;
  json["rope_type"] = name_of(rope.scaling);
  json["factor"] = rope.factor;
  if (rope.scaling == RopeScaling::llama3) {
    json["low_freq_factor"] = rope.low_freq_factor;
    json["high_freq_factor"] = rope.high_freq_factor;
  }
  if (rope.scaling == RopeScaling::yarn) {
    json["beta_fast"] = rope.beta_fast;
    json["beta_slow"] = rope.beta_slow;
    if (rope.attention_factor > 0) json["attention_factor"] = rope.attention_factor;
  }
  if (needs_original(rope.scaling)) {
    json["original_max_position_embeddings"] = original_length(config);
  }
  return json;
}

void write_gpt2(const ModelConfig& config, nlohmann::ordered_json& json) {
  json["architectures"] = {"GPT2LMHeadModel"};
  json["model_type"] = "gpt2";
  json["activation_function"] = activation_name(config.activation);
  json["n_embd"] = config.hidden;
  json["n_head"] = config.heads;
  json["n_inner"] = config.ffn;
  json["n_layer"] = config.layers;
  json["n_positions"] = config.seq_len;
  json["layer_norm_epsilon"] = config.norm_eps;
  json["embd_pdrop"] = config.dropout;
  json["resid_pdrop"] = config.dropout;
  json["attn_pdrop"] = 0.0;
}

void write_llama_like(const ModelConfig& config, nlohmann::ordered_json& json) {
  const bool qwen = config.family == Family::qwen2;
  json["architectures"] = {qwen ? "Qwen2ForCausalLM" : "LlamaForCausalLM"};
  json["model_type"] = name_of(config.family);
  json["hidden_act"] = activation_name(config.activation);
  json["hidden_size"] = config.hidden;
  json["intermediate_size"] = config.ffn;
  json["num_hidden_layers"] = config.layers;
  json["num_attention_heads"] = config.heads;
  json["num_key_value_heads"] = config.kv_heads;
  json["head_dim"] = config.head_dim;
  json["max_position_embeddings"] = config.seq_len;
  json["rms_norm_eps"] = config.norm_eps;
  json["rope_theta"] = config.rope.theta;
  json["rope_scaling"] = rope_scaling(config);
  json["attention_dropout"] = 0.0;
  if (qwen) {
    json["use_sliding_window"] = false;
  } else {
    json["attention_bias"] = config.attention_bias;
    json["mlp_bias"] = config.mlp_bias;
  }
}

}  // namespace

std::string hf_config_text(const ModelConfig& config, DType weights) {
  nlohmann::ordered_json json;
  if (config.family == Family::gpt2) {
    write_gpt2(config, json);
  } else {
    write_llama_like(config, json);
  }
  json["vocab_size"] = config.vocab;
  json["tie_word_embeddings"] = config.tie_embeddings;
  json["initializer_range"] = config.init_std;
  // The classes' own defaults would lie outside a small vocabulary.
  json["bos_token_id"] = nullptr;
  json["eos_token_id"] = nullptr;
  json["torch_dtype"] = torch_name(weights);
  json["use_cache"] = true;
  return json.dump(2) + "\n";
}

std::string first_difference(const ModelConfig& a, const ModelConfig& b) {
  std::string found;
  const auto compare = [&](std::string_view name, const auto& left, const auto& right) {
    if (found.empty() && left != right) found = fmt::format("{} is {} and {}", name, left, right);
  };
  compare("family", name_of(a.family), name_of(b.family));
  compare("layers", a.layers, b.layers);
  compare("hidden", a.hidden, b.hidden);
  compare("heads", a.heads, b.heads);
  compare("kv_heads", a.kv_heads, b.kv_heads);
  compare("head_dim", a.head_dim, b.head_dim);
  compare("ffn", a.ffn, b.ffn);
  compare("vocab", a.vocab, b.vocab);
  compare("seq_len", a.seq_len, b.seq_len);
  compare("tie_embeddings", a.tie_embeddings, b.tie_embeddings);
  compare("norm_eps", a.norm_eps, b.norm_eps);
  compare("activation", activation_name(a.activation), activation_name(b.activation));
  compare("attention_bias", a.attention_bias, b.attention_bias);
  compare("attention_out_bias", a.attention_out_bias, b.attention_out_bias);
  compare("mlp_bias", a.mlp_bias, b.mlp_bias);
  if (a.learned_positions()) return found;
  compare("rope_theta", a.rope.theta, b.rope.theta);
  compare("rope_scaling", name_of(a.rope.scaling), name_of(b.rope.scaling));
  if (a.rope.scaling == RopeScaling::none) return found;
  compare("rope_factor", a.rope.factor, b.rope.factor);
  if (needs_original(a.rope.scaling)) {
    compare("rope_original_seq_len", original_length(a), original_length(b));
  }
  if (a.rope.scaling == RopeScaling::llama3) {
    compare("rope_low_freq_factor", a.rope.low_freq_factor, b.rope.low_freq_factor);
    compare("rope_high_freq_factor", a.rope.high_freq_factor, b.rope.high_freq_factor);
  } else if (a.rope.scaling == RopeScaling::yarn) {
    compare("rope_beta_fast", a.rope.beta_fast, b.rope.beta_fast);
    compare("rope_beta_slow", a.rope.beta_slow, b.rope.beta_slow);
    compare("rope_attention_factor", a.rope.attention_factor, b.rope.attention_factor);
  }
  return found;
}

}  // namespace belay
