#include "belay/model/parameter_table.h"

#include <fmt/core.h>

#include <cmath>
#include <utility>

namespace belay {
namespace {

constexpr std::int64_t kFlatAlignment = 32;  // elements: 128 bytes of f32

// How one family spells its tensors in a Hugging Face checkpoint.
struct HfNames {
  std::string_view prefix;  // in front of everything but the head
  std::string_view embedding, positions, layer, norm1, norm2, final_norm, out, up, down, head;
  bool fused_qkv;   // one c_attn instead of q_proj, k_proj, v_proj
  bool transposed;  // Conv1D
};

constexpr HfNames kGpt2Names = {"",     "wte",  "wpe",         "h.",       "ln_1",
                                "ln_2", "ln_f", "attn.c_proj", "mlp.c_fc", "mlp.c_proj",
                                "",     true,   true};
constexpr HfNames kLlamaNames = {"model.",
                                 "embed_tokens",
                                 "",
                                 "layers.",
                                 "input_layernorm",
                                 "post_attention_layernorm",
                                 "norm",
                                 "self_attn.o_proj",
                                 "",
                                 "mlp.down_proj",
                                 "lm_head",
                                 false,
                                 false};

class Builder {
 public:
  explicit Builder(const ModelConfig& config)
      : c_(config), n_(config.family == Family::gpt2 ? kGpt2Names : kLlamaNames) {}

  ParameterTable build() {
    const std::string prefix(n_.prefix);
    matrix("embedding.weight", {c_.vocab, c_.hidden}, c_.init_std,
           {{prefix + std::string(n_.embedding) + ".weight", 0, c_.vocab, false}});
    if (c_.learned_positions()) {
      matrix("positions.weight", {c_.seq_len, c_.hidden}, c_.init_std,
             {{prefix + std::string(n_.positions) + ".weight", 0, c_.seq_len, false}});
    }
    for (std::int64_t layer = 0; layer < c_.layers; ++layer) {
      layer_ = static_cast<int>(layer);
      add_layer(layer);
    }
    layer_ = -1;
    norm("final_norm", prefix + std::string(n_.final_norm));
    if (!c_.tie_embeddings) {
      const std::string head = n_.head.empty() ? "lm_head" : std::string(n_.head);
      matrix("head.weight", {c_.vocab, c_.hidden}, c_.init_std,
             {{head + ".weight", 0, c_.vocab, false}});
    }
    return std::move(table_);
  }

 private:
  void add(Parameter parameter) { table_.add(std::move(parameter)); }
  void matrix(std::string name, const Shape& shape, double std, std::vector<HfPart> hf) {
    add({std::move(name), shape, Init::normal, std, true, true, std::move(hf), 0, layer_});
  }
  void bias(std::string name, std::int64_t size, std::vector<HfPart> hf) {
    add({std::move(name), Shape{size}, Init::zeros, 0, false, true, std::move(hf), 0, layer_});
  }
  void norm(const std::string& name, const std::string& hf) {
    add({name + ".weight",
         Shape{c_.hidden},
         Init::ones,
         0,
         false,
         false,
         {{hf + ".weight", 0, c_.hidden, false}},
         0,
         layer_});
    if (c_.norm() == NormKind::layer) {
      add({name + ".bias",
           Shape{c_.hidden},
           Init::zeros,
           0,
           false,
           false,
           {{hf + ".bias", 0, c_.hidden, false}},
           0,
           layer_});
    }
  }
  // A linear layer whose rows are the parts one after the other.
  void linear(const std::string& name, std::int64_t in, double std, bool with_bias,
              const std::vector<std::pair<std::string, std::int64_t>>& parts) {
    std::vector<HfPart> weights;
    std::vector<HfPart> biases;
    std::int64_t out = 0;
    for (const auto& [hf, rows] : parts) {
      weights.push_back({hf + ".weight", out, out + rows, n_.transposed});
      biases.push_back({hf + ".bias", out, out + rows, false});
      out += rows;
    }
    matrix(name + ".weight", {out, in}, std, std::move(weights));
    if (with_bias) bias(name + ".bias", out, std::move(biases));
  }

  void add_layer(std::int64_t layer) {
    const std::string hf = fmt::format("{}{}{}.", n_.prefix, n_.layer, layer);
    const std::string own = fmt::format("layers.{}.", layer);
    const double residual_std = c_.init_std / std::sqrt(2.0 * static_cast<double>(c_.layers));
    const std::int64_t q = c_.heads * c_.head_dim;
    const std::int64_t kv = c_.kv_heads * c_.head_dim;
    norm(own + "norm1", hf + std::string(n_.norm1));
    if (n_.fused_qkv) {
      linear(own + "attention.qkv", c_.hidden, c_.init_std, c_.attention_bias,
             {{hf + "attn.c_attn", q + 2 * kv}});
    } else {
      linear(own + "attention.qkv", c_.hidden, c_.init_std, c_.attention_bias,
             {{hf + "self_attn.q_proj", q},
              {hf + "self_attn.k_proj", kv},
              {hf + "self_attn.v_proj", kv}});
    }
    linear(own + "attention.out", q, residual_std, c_.attention_out_bias,
           {{hf + std::string(n_.out), c_.hidden}});
    norm(own + "norm2", hf + std::string(n_.norm2));
    if (c_.gated()) {
      linear(own + "ffn.up", c_.hidden, c_.init_std, c_.mlp_bias,
             {{hf + "mlp.gate_proj", c_.ffn}, {hf + "mlp.up_proj", c_.ffn}});
    } else {
      linear(own + "ffn.up", c_.hidden, c_.init_std, c_.mlp_bias,
             {{hf + std::string(n_.up), c_.ffn}});
    }
    linear(own + "ffn.down", c_.ffn, residual_std, c_.mlp_bias,
           {{hf + std::string(n_.down), c_.hidden}});
  }

  const ModelConfig& c_;
  const HfNames& n_;
  ParameterTable table_;
  int layer_ = -1;  // that parameters are added to
};

}  // namespace

int ParameterTable::add(Parameter parameter) {
  parameter.offset = flat_;
  count_ += parameter.elements();
  flat_ += (parameter.elements() + kFlatAlignment - 1) / kFlatAlignment * kFlatAlignment;
  parameters_.push_back(std::move(parameter));
  return size() - 1;
}

int ParameterTable::find(std::string_view name) const {
  for (int index = 0; index < size(); ++index) {
    if ((*this)[index].name == name) return index;
  }
  return -1;
}

std::vector<std::string> ParameterTable::names() const {
  std::vector<std::string> names;
  for (const Parameter& parameter : parameters_) names.push_back(parameter.name);
  return names;
}

ParameterTable make_parameter_table(const ModelConfig& config) {
  return Builder(config).build();
}

}  // namespace belay
