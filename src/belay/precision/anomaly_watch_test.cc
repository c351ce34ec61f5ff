#include "belay/precision/anomaly_watch.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "belay/precision/arithmetic_config.h"
#include "belay/train/tiny_run.h"

namespace belay {
namespace {

using testing::tiny_model;
using testing::TinyBatch;
using testing::TinyRun;

// Runs step 7 in two micro-batches and returns what the watch says of it.
std::string described_step(TinyRun& run, const TinyBatch& batch) {
  AnomalyWatch watch(run.program->lane());
  run.program->lane().set_recorder(&watch);
  const OptimizerConfig optimizer = testing::plain_optimizer();
  Stepper stepper(*run.program, optimizer, 10, BatchShare{.micro_batches = 2});
  stepper.set_watch(&watch);
  std::int64_t next = 0;
  stepper.run(7, 7, [&] {
    ++next;
    return batch.micro(next - 1, next);
  });
  run.program->lane().set_recorder(nullptr);
  return watch.description();
}

void set_weight(TinyRun& run, const std::string& name, float value) {
  const int index = run.table.find(name);
  ASSERT_GE(index, 0);
  std::vector<float> values = run.read(index);
  values[values.size() / 2] = value;
  ParameterStore::write(run.program->lane(), run.program->parameters().master(index), values);
  run.program->parameters().refresh_copies(run.program->lane());
}

class AnomalyTest : public ::testing::TestWithParam<const char*> {};

TEST_P(AnomalyTest, NamesOperatorLayerAndMicroBatchOfABadWeight) {
  const ModelConfig model = tiny_model(Family::llama);
  const TinyBatch batch(model, 2);
  TinyRun run(model, 1, GetParam());
  EXPECT_EQ(described_step(run, batch), "");
  set_weight(run, "layers.1.ffn.down.weight", std::numeric_limits<float>::quiet_NaN());
  const std::string text = described_step(run, batch);
  EXPECT_EQ(text.substr(0, text.find(" (kernel")),
            "step 7, micro-batch 0, layer 1, forward: matmul");
  EXPECT_NE(text.find("left a value that is not finite in dst"), std::string::npos) << text;
}

// Only the second row has the token whose embedding is bad.
TEST_P(AnomalyTest, NamesTheMicroBatch) {
  const ModelConfig model = tiny_model(Family::llama);
  TinyBatch batch(model, 2);
  std::fill(batch.tokens.begin(), batch.tokens.end(), 1);
  batch.tokens.back() = static_cast<std::int32_t>(model.vocab / 2);
  TinyRun run(model, 1, GetParam());
  set_weight(run, "embedding.weight", std::numeric_limits<float>::infinity());
  const std::string text = described_step(run, batch);
  EXPECT_EQ(text.substr(0, text.find(" (kernel")),
            "step 7, micro-batch 1, forward: embedding_forward");
}

// A weight of the second norm that f16 holds, but not what comes back through it.
TEST_P(AnomalyTest, NamesTheFirstBadGradientOfTheBackwardPass) {
  const ModelConfig model = tiny_model(Family::llama);
  const TinyBatch batch(model, 2);
  TinyRun run(model, 1, GetParam(), DType::f16);
  for (const char* name : {"layers.1.ffn.down.weight", "layers.1.ffn.up.weight"}) {
    const int index = run.table.find(name);
    std::vector<float> values = run.read(index);
    for (float& value : values)
      value = std::string(name).find("up") != std::string::npos ? 0.0F : 6e4F;
    ParameterStore::write(run.program->lane(), run.program->parameters().master(index), values);
  }
  run.program->parameters().refresh_copies(run.program->lane());
  const std::string text = described_step(run, batch);
  EXPECT_EQ(text.substr(0, text.find(" (kernel")),
            "step 7, micro-batch 0, layer 1, backward: matmul");
}

TEST_P(AnomalyTest, NamesWhatSaturates) {
  const ModelConfig model = tiny_model(Family::llama);
  const TinyBatch batch(model, 2);
  TinyRun run(model, 1, GetParam(), DType::f16);
  run.device->set_overflow(Overflow::saturate);
  for (const char* name : {"layers.0.ffn.up.weight", "layers.0.ffn.down.weight"}) {
    const int index = run.table.find(name);
    std::vector<float> values(static_cast<std::size_t>(run.table[index].elements()), 100.0F);
    ParameterStore::write(run.program->lane(), run.program->parameters().master(index), values);
  }
  run.program->parameters().refresh_copies(run.program->lane());
  const std::string text = described_step(run, batch);
  EXPECT_EQ(text.substr(0, text.find(',', 10)), "step 7, micro-batch 0");
  EXPECT_NE(text.find("layer 0, forward"), std::string::npos) << text;
  EXPECT_NE(text.find("saturated at 65504"), std::string::npos) << text;
}

INSTANTIATE_TEST_SUITE_P(Devices, AnomalyTest, ::testing::Values("cpu", "reference", "guard"),
                         [](const auto& info) { return std::string(info.param); });

TEST(ArithmeticConfigTest, RaisesTheEpsOfNormsInF16Only) {
  const ModelConfig model = tiny_model(Family::llama);
  ASSERT_LT(model.norm_eps, 1e-4);
  EXPECT_EQ(in_precision(model, DType::f32).norm_eps, model.norm_eps);
  EXPECT_EQ(in_precision(model, DType::bf16).norm_eps, model.norm_eps);
  EXPECT_EQ(in_precision(model, DType::f16).norm_eps, 1e-4);
  ArithmeticConfig config;
  config.norm_eps_floor = 1e-3;
  EXPECT_EQ(in_precision(model, DType::f16, config).norm_eps, 1e-3);
  config.norm_eps_floor = 0;
  EXPECT_EQ(in_precision(model, DType::f16, config).norm_eps, model.norm_eps);
}

}  // namespace
}  // namespace belay
