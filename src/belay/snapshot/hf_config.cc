#include "belay/snapshot/hf_config.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "belay/base/error.h"
#include "belay/base/file.h"
#include "belay/base/log.h"
#include "belay/snapshot/hf_config_fields.h"
#include "belay/snapshot/hf_config_rope.h"

namespace belay {
namespace {

// Far above any model; they keep products of two within 64 bits and tables small.
constexpr std::int64_t kMaxLayers = 10'000;
constexpr std::int64_t kMaxWidth = std::int64_t{1} << 24;
constexpr std::int64_t kMaxRows = std::int64_t{1} << 31;
constexpr std::int64_t kMaxFile = std::int64_t{16} << 20;

Activation parse_activation(ConfigFields& fields, std::string_view key, std::string_view fallback) {
  const std::string name = fields.text(key, fallback);
  if (name == "silu" || name == "swish") return Activation::silu;
  if (name == "gelu") return Activation::gelu_erf;
  if (name == "gelu_new" || name == "gelu_pytorch_tanh") return Activation::gelu_tanh;
  fields.refuse(key, "the activations are silu, gelu, gelu_new and gelu_pytorch_tanh");
}

Family read_family(ConfigFields& fields) {
  const std::string type = fields.text("model_type", "");
  if (type != "gpt2" && type != "llama" && type != "qwen2") {
    fields.refuse("model_type", "the families are gpt2, llama and qwen2");
  }
  const Family family = parse_family(type);
  if (const nlohmann::json* names = fields.get("architectures")) {
    static constexpr std::array<std::string_view, 3> kCausal = {
        "GPT2LMHeadModel", "LlamaForCausalLM", "Qwen2ForCausalLM"};
    const std::string_view expected = kCausal[static_cast<std::size_t>(family)];
    // The bare GPT2Model has the same tensors, because its head is tied.
    const bool fits = names->is_array() && std::all_of(names->begin(), names->end(), [&](auto& n) {
                        return n == expected || (family == Family::gpt2 && n == "GPT2Model");
                      });
    if (!fits) fields.refuse("architectures", fmt::format("[\"{}\"] is expected", expected));
  }
  return family;
}

// Settings of other models in these families' clothes.
void refuse_foreign(ConfigFields& fields) {
  for (const std::string_view key :
       {"quantization_config", "num_experts", "num_local_experts", "n_routed_experts",
        "attn_logit_softcapping", "final_logit_softcapping", "query_pre_attn_scalar",
        "block_sparse", "adapter_config", "vision_config", "layerdrop"}) {
    fields.only(key, nullptr);
  }
  for (const std::string_view key :
       {"is_encoder_decoder", "add_cross_attention", "qk_norm", "use_qk_norm", "qk_layernorm",
        "parallel_attn", "use_parallel_residual", "reuse_kv", "alibi", "use_mrope"}) {
    fields.only(key, false);
  }
  for (const std::string_view key : {"embedding_multiplier", "residual_multiplier",
                                     "logits_scaling", "scale_emb", "mup_scale"}) {
    fields.only(key, 1);
  }
  fields.only("scale_attn_weights", true);
  fields.only("scale_attn_by_inverse_layer_idx", false);
}

void warn_if_above_zero(ConfigFields& fields, std::string_view key, double fallback) {
  const double value = fields.number(key, fallback);
  if (value > 0) log::warn("{}: {} {} is ignored", fields.path(), key, value);
}

void read_gpt2(ConfigFields& fields, ModelConfig& config) {
  config.hidden = fields.integer("n_embd", 768, kMaxWidth);
  config.layers = fields.integer("n_layer", 12, kMaxLayers);
  config.heads = fields.integer("n_head", 12, kMaxWidth);
  config.ffn = fields.integer("n_inner", 4 * config.hidden, 4 * kMaxWidth);
  config.vocab = fields.integer("vocab_size", 50257, kMaxRows);
  const std::int64_t old_name = fields.integer("n_ctx", 1024, kMaxRows);
  config.seq_len = fields.integer("n_positions", old_name, kMaxRows);
  config.norm_eps = fields.number("layer_norm_epsilon", 1e-5);
  config.activation = parse_activation(fields, "activation_function", "gelu_new");
  config.tie_embeddings = fields.boolean("tie_word_embeddings", true);
  config.dropout = fields.number("resid_pdrop", 0.1);
  const double embedding_dropout = fields.number("embd_pdrop", 0.1);
  if (embedding_dropout != config.dropout) {
    log::warn("{}: embd_pdrop {} is ignored; resid_pdrop {} holds for both", fields.path(),
              embedding_dropout, config.dropout);
  }
  fields.number("attn_pdrop", 0.1);  // regularisation of training only
  fields.ignore({"reorder_and_upcast_attn", "summary_activation", "summary_first_dropout",
                 "summary_proj_to_labels", "summary_type", "summary_use_proj"});
}

// Qwen2 can limit attention to a window in its later layers; only uncut attention is supported.
void check_window(ConfigFields& fields, const ModelConfig& config) {
  constexpr std::int64_t kDefaultWindow = 4096;
  constexpr std::int64_t kDefaultFirstLayer = 28;
  const std::optional<std::int64_t> window =
      fields.has("sliding_window") ? fields.optional_integer("sliding_window", kMaxRows)
                                   : std::optional(kDefaultWindow);
  const bool cuts = window && *window < config.seq_len;
  if (const nlohmann::json* types = fields.get("layer_types")) {
    if (!types->is_array()) fields.refuse("layer_types", "a list is expected");
    for (const nlohmann::json& type : *types) {
      if (type != "full_attention" && (type != "sliding_attention" || cuts)) {
        fields.refuse("layer_types", "only full attention is supported");
      }
    }
  }
  const std::int64_t first =
      fields.get("max_window_layers") != nullptr && *fields.get("max_window_layers") == 0
          ? 0
          : fields.integer("max_window_layers", kDefaultFirstLayer, kMaxRows);
  if (fields.boolean("use_sliding_window", false) && cuts && first < config.layers) {
    fields.refuse("use_sliding_window", "sliding windows are not supported");
  }
}

void read_llama_like(ConfigFields& fields, ModelConfig& config) {
  const bool qwen = config.family == Family::qwen2;
  config.hidden = fields.integer("hidden_size", 4096, kMaxWidth);
  config.layers = fields.integer("num_hidden_layers", 32, kMaxLayers);
  config.heads = fields.integer("num_attention_heads", 32, kMaxWidth);
  // Qwen2's class has a default of 32 here, LLaMA's falls back to the number of heads.
  config.kv_heads = fields.integer("num_key_value_heads", qwen ? 32 : config.heads, kMaxWidth);
  config.head_dim = fields.integer("head_dim", 0, kMaxWidth);
  config.ffn = fields.integer("intermediate_size", qwen ? 22016 : 11008, kMaxWidth);
  config.vocab = fields.integer("vocab_size", qwen ? 151936 : 32000, kMaxRows);
  config.seq_len = fields.integer("max_position_embeddings", qwen ? 32768 : 2048, kMaxRows);
  config.norm_eps = fields.number("rms_norm_eps", 1e-6);
  config.activation = parse_activation(fields, "hidden_act", "silu");
  config.tie_embeddings = fields.boolean("tie_word_embeddings", false);
  config.dropout = 0.0;
  config.rope = read_rope(fields, config.seq_len);
  if (qwen) {
    fields.only("attention_bias", true);
    fields.only("mlp_bias", false);
    check_window(fields, config);
  } else {
    config.attention_bias = config.attention_out_bias = fields.boolean("attention_bias", false);
    config.mlp_bias = fields.boolean("mlp_bias", false);
    fields.only("sliding_window", nullptr);
  }
  warn_if_above_zero(fields, "attention_dropout", 0.0);
  fields.ignore({"pretraining_tp"});
}

// Each size is limited above, their products are here: everything later counts in 64 bits.
void check_size(const ModelConfig& config, const std::string& path) {
  constexpr double kMaxParameters = 1e15;
  const auto hidden = static_cast<double>(config.hidden);
  const double heads = static_cast<double>(config.heads + config.kv_heads);
  const double layer =
      2 * heads * static_cast<double>(config.head_dim) + 3 * static_cast<double>(config.ffn) + 4;
  const double rows = 2.0 * static_cast<double>(config.vocab) + static_cast<double>(config.seq_len);
  const double parameters = hidden * (static_cast<double>(config.layers) * layer + rows);
  if (parameters > kMaxParameters) {
    fail(ExitCode::data, "{}: this model would have about {:.2g} parameters; up to {:.2g} are read",
         path, parameters, kMaxParameters);
  }
}

}  // namespace

ModelConfig parse_hf_config(std::string_view json, const std::string& path) {
  const nlohmann::json root = nlohmann::json::parse(json, nullptr, false);
  if (root.is_discarded()) fail(ExitCode::data, "{}: not JSON", path);
  if (!root.is_object()) fail(ExitCode::data, "{}: a JSON object is expected", path);
  ConfigFields fields(root, path);
  ModelConfig config = family_defaults(read_family(fields));
  refuse_foreign(fields);
  if (config.family == Family::gpt2) {
    read_gpt2(fields, config);
  } else {
    read_llama_like(fields, config);
  }
  config.init_std = fields.number("initializer_range", 0.02);
  fields.ignore({"_name_or_path",
                 "_attn_implementation",
                 "_attn_implementation_autoset",
                 "attn_implementation",
                 "auto_map",
                 "bos_token_id",
                 "chunk_size_feed_forward",
                 "dtype",
                 "eos_token_id",
                 "id2label",
                 "label2id",
                 "num_labels",
                 "output_attentions",
                 "output_hidden_states",
                 "pad_token_id",
                 "problem_type",
                 "return_dict",
                 "task_specific_params",
                 "tokenizer_class",
                 "torch_dtype",
                 "torchscript",
                 "transformers_version",
                 "use_cache"});
  if (const std::vector<std::string> unknown = fields.unasked(); !unknown.empty()) {
    log::warn("{}: not known and ignored: {}", path, fmt::join(unknown, ", "));
  }
  try {
    finish_config(config);
  } catch (const Error& error) {
    fail(ExitCode::data, "{}: {}", path, error.what());
  }
  check_size(config, path);
  return config;
}

void require_hf_config(const ModelConfig& config) {
  std::string difference;
  try {
    difference = first_difference(
        parse_hf_config(hf_config_text(config, DType::f32), "[model] as config.json"), config);
  } catch (const Error& error) {
    fail(ExitCode::usage, "{}", error.what());
  }
  if (difference.empty()) return;
  fail(ExitCode::usage,
       "[model]: {} (as a config.json of family {} is read, and as it is set); snapshots of such a "
       "model could not be loaded again: change it",
       difference, name_of(config.family));
}

ModelConfig load_hf_config(const std::string& dir) {
  const std::string path = dir + "/" + std::string(kConfigFile);
  return parse_hf_config(read_file(path, kMaxFile), path);
}

}  // namespace belay
