#include "belay/model/model_config.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <array>
#include <utility>

#include "belay/base/error.h"

namespace belay {
namespace {

constexpr std::array<std::pair<Family, std::string_view>, 3> kFamilies = {
    {{Family::gpt2, "gpt2"}, {Family::llama, "llama"}, {Family::qwen2, "qwen2"}}};

constexpr std::array<std::pair<RopeScaling, std::string_view>, 5> kScalings = {
    {{RopeScaling::none, "none"},
     {RopeScaling::linear, "linear"},
     {RopeScaling::dynamic, "dynamic"},
     {RopeScaling::yarn, "yarn"},
     {RopeScaling::llama3, "llama3"}}};

std::vector<std::int64_t> divisors(std::int64_t number) {
  std::vector<std::int64_t> result;
  for (std::int64_t d = 1; d <= number; ++d) {
    if (number % d == 0) result.push_back(d);
  }
  return result;
}

struct Preset {
  std::string_view name;
  Family family;
  std::int64_t layers, hidden, heads, kv_heads, ffn, vocab, seq_len;
};

constexpr std::array<Preset, 6> kPresets = {{
    {"gpt2-tiny", Family::gpt2, 2, 64, 4, 4, 256, 512, 128},
    {"gpt2-124m", Family::gpt2, 12, 768, 12, 12, 3072, 50257, 1024},
    {"llama-tiny", Family::llama, 2, 64, 4, 2, 176, 512, 128},
    {"llama-8m", Family::llama, 6, 256, 8, 4, 704, 8192, 512},
    {"llama-110m", Family::llama, 12, 768, 12, 12, 2048, 32000, 1024},
    {"qwen2-0.5b", Family::qwen2, 24, 896, 14, 2, 4864, 151936, 32768},
}};

}  // namespace

std::string_view name_of(Family family) {
  for (const auto& [value, name] : kFamilies) {
    if (value == family) return name;
  }
  return "?";
}

Family parse_family(std::string_view name) {
  for (const auto& [value, text] : kFamilies) {
    if (text == name) return value;
  }
  fail(ExitCode::usage, "model family '{}' is not known; the families are gpt2, llama and qwen2",
       name);
}

std::string_view name_of(RopeScaling scaling) {
  for (const auto& [value, name] : kScalings) {
    if (value == scaling) return name;
  }
  return "?";
}

ModelConfig family_defaults(Family family) {
  ModelConfig config;
  config.family = family;
  switch (family) {
    case Family::gpt2:
      config.tie_embeddings = true;
      config.activation = Activation::gelu_tanh;
      config.attention_bias = config.attention_out_bias = config.mlp_bias = true;
      break;
    case Family::llama:
      break;
    case Family::qwen2:
      config.norm_eps = 1e-6;
      config.rope.theta = 1000000.0;
      config.attention_bias = true;
      break;
  }
  return config;
}

void finish_config(ModelConfig& config) {
  const auto positive = [](std::string_view name, std::int64_t value) {
    if (value <= 0) fail(ExitCode::usage, "model.{} is {}; it must be at least 1", name, value);
  };
  positive("layers", config.layers);
  positive("hidden", config.hidden);
  positive("heads", config.heads);
  positive("vocab", config.vocab);
  positive("seq_len", config.seq_len);
  if (config.head_dim == 0) {
    if (config.hidden % config.heads != 0) {
      fail(ExitCode::usage,
           "model.hidden {} is not divisible by model.heads {}; choose heads among {}, or set "
           "model.head_dim",
           config.hidden, config.heads, fmt::join(divisors(config.hidden), " "));
    }
    config.head_dim = config.hidden / config.heads;
  }
  positive("head_dim", config.head_dim);
  if (config.kv_heads == 0) config.kv_heads = config.heads;
  positive("kv_heads", config.kv_heads);
  if (config.heads % config.kv_heads != 0) {
    fail(ExitCode::usage, "model.kv_heads {} does not divide model.heads {}; choose among {}",
         config.kv_heads, config.heads, fmt::join(divisors(config.heads), " "));
  }
  if (!config.learned_positions() && config.head_dim % 2 != 0) {
    fail(ExitCode::usage, "model.head_dim {} is odd; rotary positions need pairs", config.head_dim);
  }
  if (config.ffn == 0) {
    // GPT-2: 4 hidden. Gated: 8/3 hidden rounded up to 64, as in LLaMA (2302.13971, sec. 2.2).
    config.ffn = config.gated() ? (8 * config.hidden / 3 + 63) / 64 * 64 : 4 * config.hidden;
  }
  positive("ffn", config.ffn);
  if (config.dropout < 0.0 || config.dropout >= 1.0) {
    fail(ExitCode::usage, "model.dropout is {}; it must be in [0, 1)", config.dropout);
  }
  if (!(config.norm_eps > 0.0)) {
    fail(ExitCode::usage, "model.norm_eps is {}; it must be above 0", config.norm_eps);
  }
}

ModelConfig preset_config(std::string_view name) {
  for (const Preset& preset : kPresets) {
    if (preset.name != name) continue;
    ModelConfig config = family_defaults(preset.family);
    config.layers = preset.layers;
    config.hidden = preset.hidden;
    config.heads = preset.heads;
    config.kv_heads = preset.kv_heads;
    config.ffn = preset.ffn;
    config.vocab = preset.vocab;
    config.seq_len = preset.seq_len;
    if (preset.family == Family::qwen2) config.tie_embeddings = true;
    finish_config(config);
    return config;
  }
  fail(ExitCode::usage, "no preset model '{}'; the presets are {}", name,
       fmt::join(preset_names(), ", "));
}

std::vector<std::string_view> preset_names() {
  std::vector<std::string_view> names;
  for (const Preset& preset : kPresets) names.push_back(preset.name);
  return names;
}

}  // namespace belay
