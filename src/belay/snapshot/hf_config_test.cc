#include "belay/snapshot/hf_config.h"

#include <gtest/gtest.h>

#include "belay/base/error.h"
#include "belay/snapshot/test_model.h"

namespace belay {
namespace {

using testing_support::tiny_config;

ModelConfig parse(const std::string& text) {
  return parse_hf_config(text, "config.json");
}

std::string refusal(const std::string& text) {
  try {
    parse(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::data);
    return error.what();
  }
  return "accepted";
}

// A small LLaMA with `more` keys.
std::string llama(const std::string& more) {
  return R"({"model_type":"llama","hidden_size":64,"num_hidden_layers":2,"num_attention_heads":4,)"
         R"("intermediate_size":128,"vocab_size":100,"max_position_embeddings":4096)" +
         (more.empty() ? "" : "," + more) + "}";
}

TEST(HfConfigTest, WhatIsWrittenReadsBack) {
  for (const Family family : {Family::gpt2, Family::llama, Family::qwen2}) {
    for (const bool tied : {true, false}) {
      ModelConfig config = tiny_config(family, tied);
      config.norm_eps = 3e-6;
      config.rope.theta = 123456.5;
      EXPECT_EQ(first_difference(parse(hf_config_text(config, DType::bf16)), config), "");
    }
  }
  ModelConfig config = tiny_config(Family::llama, true);
  config.attention_bias = config.attention_out_bias = config.mlp_bias = true;
  config.activation = Activation::gelu_tanh;
  config.head_dim = 16;
  for (const RopeScaling scaling :
       {RopeScaling::linear, RopeScaling::dynamic, RopeScaling::yarn, RopeScaling::llama3}) {
    config.rope.scaling = scaling;
    config.rope.factor = 4.0;
    config.rope.low_freq_factor = 1.5;
    config.rope.high_freq_factor = 3.5;
    config.rope.original_seq_len = 16;
    config.rope.attention_factor = 1.25;
    EXPECT_EQ(first_difference(parse(hf_config_text(config, DType::f32)), config), "");
  }
}

// Dynamic scaling stretches from its original length, which most files do not have.
TEST(HfConfigTest, TheLengthBeforeStretchingIsKept) {
  ModelConfig config = tiny_config(Family::llama, true);
  config.rope.scaling = RopeScaling::dynamic;
  config.rope.factor = 2.0;
  config.rope.original_seq_len = config.seq_len / 2;
  const ModelConfig read = parse(hf_config_text(config, DType::f32));
  EXPECT_EQ(read.rope.original_seq_len, config.seq_len / 2);
  ModelConfig other = config;
  other.rope.original_seq_len = config.seq_len / 4;
  EXPECT_NE(first_difference(read, other).find("rope_original_seq_len"), std::string::npos);
  EXPECT_EQ(parse(llama(R"("rope_scaling":{"type":"dynamic","factor":2.0})")).rope.original_seq_len,
            0);
  // Without one it is the longest sequence, and llama3's reader wants to be told.
  config.rope = {.scaling = RopeScaling::llama3, .factor = 8.0};
  EXPECT_EQ(first_difference(parse(hf_config_text(config, DType::f32)), config), "");
}

TEST(HfConfigTest, WhatItCannotSayIsRefused) {
  const auto refusal_of = [](Family family, const auto& change) -> std::string {
    ModelConfig config = tiny_config(family, false);
    change(config);
    try {
      require_hf_config(config);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::usage);
      return error.what();
    }
    return "accepted";
  };
  using M = ModelConfig;
  for (const Family family : {Family::gpt2, Family::llama, Family::qwen2}) {
    EXPECT_EQ(refusal_of(family, [](M&) {}), "accepted");
  }
  const std::vector<std::tuple<Family, void (*)(M&), std::string>> cases = {
      {Family::llama, [](M& m) { m.attention_bias = true; },
       "attention_out_bias is true and false"},
      {Family::llama, [](M& m) { m.attention_out_bias = true; }, "attention_out_bias is false"},
      {Family::qwen2, [](M& m) { m.mlp_bias = true; }, "mlp_bias is false and true"},
      {Family::qwen2, [](M& m) { m.attention_bias = false; }, "attention_bias is true and false"},
      {Family::qwen2, [](M& m) { m.attention_out_bias = true; }, "attention_out_bias is false"},
      {Family::gpt2, [](M& m) { m.attention_bias = false; }, "attention_bias is true and false"},
      {Family::gpt2, [](M& m) { m.mlp_bias = false; }, "mlp_bias is true and false"},
      {Family::gpt2, [](M& m) { m.kv_heads = 1; }, "kv_heads is"},
      {Family::gpt2, [](M& m) { m.head_dim *= 2; }, "head_dim is"},
      {Family::llama,
       [](M& m) {
         m.rope = {.scaling = RopeScaling::llama3, .low_freq_factor = 4, .high_freq_factor = 4};
       },
       "high_freq_factor is 4.0; it must be above low_freq_factor 4"},
  };
  for (const auto& [family, change, cause] : cases) {
    const std::string message = refusal_of(family, change);
    EXPECT_NE(message.find(cause), std::string::npos) << message << "\nexpected: " << cause;
  }
}

TEST(HfConfigTest, DefaultsAreThoseOfTheClasses) {
  const ModelConfig gpt2 = parse(R"({"model_type":"gpt2"})");
  EXPECT_EQ(first_difference(gpt2, preset_config("gpt2-124m")), "");
  EXPECT_EQ(gpt2.dropout, 0.1);
  const ModelConfig llama2 = parse(R"({"model_type":"llama","max_position_embeddings":4096})");
  EXPECT_EQ(make_parameter_table(llama2).parameter_count(), 6738415616);
  EXPECT_EQ(llama2.norm_eps, 1e-6);
  EXPECT_EQ(llama2.rope.theta, 10000.0);
  const ModelConfig qwen = parse(R"({"model_type":"qwen2"})");
  EXPECT_EQ(qwen.vocab, 151936);
  EXPECT_EQ(qwen.kv_heads, 32);
  EXPECT_EQ(qwen.rope.theta, 10000.0);
}

// As released, shortened.
TEST(HfConfigTest, PublishedConfigurations) {
  const ModelConfig llama32 = parse(R"({
    "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
    "bos_token_id": 128000, "eos_token_id": [128001, 128008], "head_dim": 64, "hidden_act": "silu",
    "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 8192,
    "max_position_embeddings": 131072, "mlp_bias": false, "model_type": "llama",
    "num_attention_heads": 32, "num_hidden_layers": 16, "num_key_value_heads": 8,
    "pretraining_tp": 1, "rms_norm_eps": 1e-05,
    "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                     "original_max_position_embeddings": 8192, "rope_type": "llama3"},
    "rope_theta": 500000.0, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
    "transformers_version": "4.45.0", "use_cache": true, "vocab_size": 128256})");
  EXPECT_EQ(make_parameter_table(llama32).parameter_count(), 1235814400);
  EXPECT_EQ(llama32.rope.scaling, RopeScaling::llama3);
  EXPECT_EQ(llama32.rope.original_seq_len, 8192);
  const ModelConfig qwen = parse(R"({
    "architectures": ["Qwen2ForCausalLM"], "hidden_act": "silu", "hidden_size": 896,
    "intermediate_size": 4864, "max_position_embeddings": 32768, "max_window_layers": 21,
    "model_type": "qwen2", "num_attention_heads": 14, "num_hidden_layers": 24,
    "num_key_value_heads": 2, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
    "sliding_window": 32768, "tie_word_embeddings": true, "use_mrope": false,
    "use_sliding_window": false, "vocab_size": 151936})");
  EXPECT_EQ(first_difference(qwen, preset_config("qwen2-0.5b")), "");
}

// A reader that knows one generation of keys only would silently use base 10000.
TEST(HfConfigTest, BothGenerationsOfRotaryKeys) {
  EXPECT_EQ(parse(llama(R"("rope_theta":5e5)")).rope.theta, 5e5);
  EXPECT_EQ(
      parse(llama(R"("rope_parameters":{"rope_theta":5e5,"rope_type":"default"})")).rope.theta,
      5e5);
  const RopeConfig rope =
      parse(llama(R"("rope_parameters":{"rope_theta":5e5,"rope_type":"yarn","factor":4,)"
                  R"("original_max_position_embeddings":1024,"beta_fast":16})"))
          .rope;
  EXPECT_EQ(rope.scaling, RopeScaling::yarn);
  EXPECT_EQ(rope.beta_fast, 16.0);
  EXPECT_EQ(rope.original_seq_len, 1024);
  // The older spelling of the type, alone and beside the newer one.
  EXPECT_EQ(parse(llama(R"("rope_scaling":{"type":"linear","factor":2})")).rope.scaling,
            RopeScaling::linear);
  EXPECT_EQ(parse(llama(R"("rope_scaling":{"type":"dynamic","rope_type":"dynamic","factor":2.0})"))
                .rope.scaling,
            RopeScaling::dynamic);
  EXPECT_NE(refusal(llama(R"("rope_theta":1e4,"rope_parameters":{"rope_theta":5e5})"))
                .find("rope_theta is 10000.0; rope_parameters says 500000"),
            std::string::npos);
}

TEST(HfConfigTest, RefusesByName) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"{", "not JSON"},
      {"[]", "a JSON object is expected"},
      {"{}", "model_type is absent"},
      {R"({"model_type":"mistral"})", "model_type is \"mistral\""},
      {llama(R"("architectures":["LlamaForSequenceClassification"])"), "architectures is"},
      {llama(R"("hidden_act":"relu")"), "hidden_act is \"relu\""},
      {llama(R"("quantization_config":{"bits":4})"), "quantization_config is"},
      {llama(R"("num_key_value_heads":3)"), "kv_heads 3 does not divide"},
      {llama(R"("head_dim":0)"), "head_dim is 0; at least 1"},
      {llama(R"("vocab_size":"many")"), "vocab_size is \"many\"; a whole number"},
      {llama(R"("vocab_size":1e3)"), "vocab_size is 1000.0; a whole number"},
      {llama(R"("num_hidden_layers":18446744073709551615)"),
       "num_hidden_layers is 1844674407370955"},
      {llama(R"("num_hidden_layers":1000000000)"), "at most 10000"},
      {llama(R"("intermediate_size":16777216,"head_dim":16777216,"num_attention_heads":16777216)"),
       "this model would have about"},
      {llama(R"("rms_norm_eps":0)"), "norm_eps"},
      {llama(R"("rope_theta":-1)"), "rope_theta is -1"},
      {llama(R"("partial_rotary_factor":0.5)"), "partial_rotary_factor is 0.5"},
      {llama(R"("rope_scaling":{"rope_type":"longrope","factor":2})"),
       "rope_scaling.rope_type is \"longrope\""},
      {llama(R"("rope_scaling":{"type":"su"})"), "rope_scaling.type is \"su\""},
      {llama(R"("rope_scaling":{"type":"linear"})"), "rope_scaling.factor is absent"},
      {llama(R"("rope_scaling":{"rope_type":"llama3","factor":8})"),
       "rope_scaling.low_freq_factor is absent"},
      {llama(R"("rope_scaling":{"rope_type":"yarn","factor":8,"mscale":1.0})"),
       "rope_scaling.mscale is 1.0"},
      {llama(R"("rope_scaling":{"rope_type":"yarn","factor":8,"truncate":false})"),
       "rope_scaling.truncate is false"},
      {llama(R"("rope_parameters":{"full_attention":{},"rope_type":3})"),
       "rope_parameters.rope_type is 3"},
      {llama(R"("sliding_window":1024)"), "sliding_window is 1024"},
      {R"({"model_type":"qwen2","use_sliding_window":true})", "use_sliding_window is true"},
      {R"({"model_type":"qwen2","sliding_window":1024,"layer_types":["sliding_attention"]})",
       "layer_types is"},
      {R"({"model_type":"gpt2","scale_attn_by_inverse_layer_idx":true})",
       "scale_attn_by_inverse_layer_idx is true"},
      {R"({"model_type":"gpt2","scale_attn_weights":false})", "scale_attn_weights is false"},
      {R"({"model_type":"gpt2","activation_function":"relu"})", "activation_function is"},
      {R"({"model_type":"gpt2","n_head":7})", "hidden 768 is not divisible by model.heads 7"},
  };
  for (const auto& [text, cause] : cases) {
    const std::string message = refusal(text);
    EXPECT_NE(message.find(cause), std::string::npos) << message << "\nexpected: " << cause;
  }
}

TEST(HfConfigTest, AcceptsWhatDoesNotMatter) {
  EXPECT_EQ(refusal(llama(R"("attention_dropout":0.1,"made_up_key":7)")), "accepted");
  EXPECT_EQ(refusal(R"({"model_type":"qwen2","use_sliding_window":true,"sliding_window":131072})"),
            "accepted");
  EXPECT_EQ(refusal(R"({"model_type":"qwen2","use_sliding_window":true,"sliding_window":1024,)"
                    R"("max_window_layers":32})"),
            "accepted");
  EXPECT_EQ(parse(R"({"model_type":"gpt2","n_ctx":512})").seq_len, 512);
}

}  // namespace
}  // namespace belay
