#include "belay/model/parameter_table.h"

#include <gtest/gtest.h>

#include "belay/base/error.h"

namespace belay {
namespace {

std::size_t hf_tensors(const ParameterTable& table) {
  std::size_t count = 0;
  for (const Parameter& parameter : table.all()) count += parameter.hf.size();
  return count;
}

TEST(ParameterTableTest, CountsOfPublishedModels) {
  const ParameterTable gpt2 = make_parameter_table(preset_config("gpt2-124m"));
  EXPECT_EQ(gpt2.parameter_count(), 124439808);
  EXPECT_EQ(hf_tensors(gpt2), 148U);
  const ParameterTable qwen = make_parameter_table(preset_config("qwen2-0.5b"));
  EXPECT_EQ(qwen.parameter_count(), 494032768);
  EXPECT_EQ(hf_tensors(qwen), 12U * 24 + 2);

  ModelConfig llama = family_defaults(Family::llama);
  llama.layers = 32;
  llama.hidden = 4096;
  llama.heads = 32;
  llama.ffn = 11008;
  llama.vocab = 32000;
  llama.seq_len = 4096;
  finish_config(llama);
  EXPECT_EQ(make_parameter_table(llama).parameter_count(), 6738415616);
  EXPECT_EQ(hf_tensors(make_parameter_table(llama)), 9U * 32 + 3);
}

TEST(ModelConfigTest, RefusesShapesThatCannotBe) {
  ModelConfig config = preset_config("llama-tiny");
  config.hidden = 30;
  config.heads = 4;
  config.head_dim = 0;
  try {
    finish_config(config);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_NE(std::string(error.what()).find("30"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("1 2 3 5 6 10 15 30"), std::string::npos);
  }
  config = preset_config("llama-tiny");
  config.kv_heads = 3;
  EXPECT_THROW(finish_config(config), Error);
}

}  // namespace
}  // namespace belay
