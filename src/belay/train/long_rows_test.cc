// The memory plan of a step as its rows get longer, from the dry run.

#include <gtest/gtest.h>

#include <map>

#include "belay/train/tiny_run.h"

namespace belay {
namespace {

std::map<std::string, std::size_t> plan_of(std::int64_t seq_len, DType dtype) {
  ModelConfig model = testing::tiny_model(Family::llama, 32768);
  ProgramConfig config;
  config.model = model;
  config.micro_batch = 1;
  config.seq_len = seq_len;
  config.compute = dtype;
  config.head_block_rows = 512;
  const ParameterTable table = make_parameter_table(model);
  const auto device = make_device("cpu");
  std::map<std::string, std::size_t> memory;
  for (const MemoryItem& item : dry_step(*device, table, config).memory) {
    memory[item.name] = item.bytes;
  }
  return memory;
}

// What does not grow with a row (weights, a block of logits, tiles) is the difference between twice
// a plan and the plan of twice the length, and must be the same at every length.
TEST(LongRowsTest, MemoryGrowsWithTheLengthOfARow) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    std::vector<std::map<std::string, std::size_t>> plans;
    for (const std::int64_t seq : {4096, 8192, 16384, 32768}) plans.push_back(plan_of(seq, dtype));
    for (std::size_t i = 1; i < plans.size(); ++i) {
      EXPECT_EQ(plans[i]["activations"], 2 * plans[i - 1]["activations"]);
      for (const char* name : {"temporaries", "kernel workspace", "inputs and sums"}) {
        const std::size_t fixed = 2 * plans[i - 1][name] - plans[i][name];
        EXPECT_EQ(fixed, 2 * plans[0][name] - plans[1][name]) << name << " at plan " << i;
        EXPECT_LT(fixed, std::size_t{3} << 20) << name;
      }
    }
    EXPECT_GT(plans[0]["activations"], 0U);
    EXPECT_GT(plans[0]["kernel workspace"], 0U);
  }
}

}  // namespace
}  // namespace belay
