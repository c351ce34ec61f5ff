#include "belay/train/plain_memory.h"

#include <gtest/gtest.h>

#include "belay/model/parameter_table.h"
#include "belay/train/planning.h"

namespace belay {
namespace {

// Counted by hand: two layers of width 64 with 4 heads and a feed-forward of 256, f32.
TEST(PlainMemoryTest, CountsWhatPlainOperatorsKeep) {
  ProgramConfig config;
  config.model = preset_config("gpt2-tiny");
  config.micro_batch = 2;
  config.seq_len = 128;
  config.head_block_rows = 64;
  const ParameterTable table = make_parameter_table(config.model);
  const auto device = make_device("cpu");
  const DryStep step = dry_step(*device, table, config);
  const PlainMemory memory = plain_memory(step.calls);
  constexpr std::size_t kTokens = 2 * 128;
  EXPECT_EQ(memory.scores, 2 * 4 * (2 * 4 * 128 * 128 - kTokens * 4));
  EXPECT_EQ(memory.normalised, 5 * 4 * kTokens * 64);  // two norms a layer and the last
  EXPECT_EQ(memory.activated, 2 * 4 * kTokens * 256);
  // Attention's backward pass: the gradient of the scores, q, k, v and the result by heads, and the
  // gradients of q, k and v. More than 192 rows of logits of 512 entries.
  EXPECT_EQ(memory.temporaries, 4 * (2 * 4 * 128 * 128 + 7 * kTokens * 64));
  EXPECT_EQ(memory.total(),
            memory.scores + memory.normalised + memory.activated + memory.temporaries);
}

TEST(PlainMemoryTest, WholeLogitsWhereTheyAreLarger) {
  ProgramConfig config;
  config.model = preset_config("gpt2-tiny");
  config.model.vocab = 2048;
  config.micro_batch = 32;
  config.seq_len = 4;
  config.head_block_rows = 8;
  const ParameterTable table = make_parameter_table(config.model);
  const auto device = make_device("cpu");
  const PlainMemory memory = plain_memory(dry_step(*device, table, config).calls);
  EXPECT_EQ(memory.temporaries, 4 * 2048 * (128 - 8));  // all rows but those of one block
}

}  // namespace
}  // namespace belay
