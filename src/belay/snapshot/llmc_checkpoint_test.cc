// The llm.c fixture of tests/golden holds the same model as the Hugging Face one, to the bit.

#include <gtest/gtest.h>

#include <span>
#include <string>
#include <vector>

#include "belay/snapshot/hf_config.h"
#include "belay/snapshot/hf_weights.h"
#include "belay/snapshot/llmc.h"

namespace belay {
namespace {

std::string golden(const std::string& name) {
  return std::string(BELAY_SOURCE_DIR) + "/tests/golden/" + name;
}

TEST(LlmcGoldenTest, TheCheckpointHoldsTheSameModelAsTheHuggingFaceDirectory) {
  const LlmcFile file(golden("llmc/gpt2_tiny.bin"));
  const ModelConfig config = load_hf_config(golden("gpt2"));
  EXPECT_EQ(first_difference(file.config(), config), "");
  const ParameterTable table = make_parameter_table(config);
  int compared = 0;
  import_weights(golden("gpt2"), table, [&](int index, std::span<const float> expected) {
    std::vector<float> values(expected.size());
    file.read(table, index, values);
    EXPECT_EQ(values, std::vector<float>(expected.begin(), expected.end())) << table[index].name;
    ++compared;
  });
  EXPECT_EQ(compared, table.size());
}

}  // namespace
}  // namespace belay
