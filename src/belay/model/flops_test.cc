#include "belay/model/flops.h"

#include <gtest/gtest.h>

namespace belay {
namespace {

TEST(FlopsTest, CountsTheCausalHalfAndTheRealWidths) {
  ModelConfig config = family_defaults(Family::gpt2);
  config.layers = 2;
  config.hidden = 32;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 8;
  config.ffn = 64;
  config.vocab = 256;
  config.seq_len = 32;
  config.tie_embeddings = false;
  finish_config(config);
  EXPECT_EQ(training_flops_per_token(config, 32), 147456.0);
  config.ffn = 128;
  EXPECT_EQ(training_flops_per_token(config, 32), 147456.0 + 6.0 * 2 * 2 * 32 * 64);
}

}  // namespace
}  // namespace belay
