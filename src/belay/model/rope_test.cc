// Rotary tables against PyTorch's values (tests/golden/golden_rope.py holds the same settings).

#include "belay/model/rope.h"

#include <gtest/gtest.h>

#include <string>

#include "belay/device/golden_file.h"

namespace belay {
namespace {

constexpr std::int64_t kLength = 40;

struct Setting {
  std::int64_t head_dim = 0;
  std::int64_t max_positions = 0;
  RopeConfig rope;
};

Setting setting(const std::string& name) {
  Setting s{16, 64, {}};
  if (name == "default") return s;
  if (name == "linear") {
    s.rope.scaling = RopeScaling::linear;
    s.rope.factor = 4.0;
  } else if (name == "dynamic_short" || name == "dynamic_long") {
    s.rope.scaling = RopeScaling::dynamic;
    s.rope.factor = 2.0;
    s.max_positions = name == "dynamic_long" ? 16 : 64;
  } else if (name == "yarn") {
    s.head_dim = 32;
    s.rope.scaling = RopeScaling::yarn;
    s.rope.factor = 4.0;
  } else if (name == "yarn_original") {
    s.head_dim = 32;
    s.max_positions = 256;
    s.rope.theta = 1e6;
    s.rope.scaling = RopeScaling::yarn;
    s.rope.factor = 4.0;
    s.rope.beta_fast = 16.0;
    s.rope.beta_slow = 2.0;
    s.rope.attention_factor = 1.25;
  } else if (name == "llama3") {
    s.head_dim = 32;
    s.rope.theta = 500000.0;
    s.rope.scaling = RopeScaling::llama3;
    s.rope.factor = 8.0;
    s.rope.low_freq_factor = 1.0;
    s.rope.high_freq_factor = 4.0;
  } else {
    ADD_FAILURE() << "no settings for the golden table " << name;
  }
  return s;
}

TEST(RopeTest, TablesOfEveryScalingEqualPyTorchs) {
  const GoldenFile file("ops/rope_tables.safetensors");
  ASSERT_EQ(file.names().size(), 7U);
  for (const std::string& name : file.names()) {
    const Setting s = setting(name);
    ModelConfig config = family_defaults(Family::llama);
    config.head_dim = s.head_dim;
    config.seq_len = kLength;
    config.rope = s.rope;
    config.rope.original_seq_len = s.max_positions;
    const std::vector<float> table = rope_table(config);
    expect_close({table.begin(), table.end()}, file.values(name), kF32Tolerance, name);
  }
}

}  // namespace
}  // namespace belay
