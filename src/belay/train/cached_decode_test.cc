#include "belay/model/generator.h"

#include <gtest/gtest.h>

#include <cmath>

#include "belay/base/error.h"
#include "belay/train/tiny_run.h"

namespace belay {
namespace {

KvCacheConfig cache_for(std::int64_t tokens) {
  KvCacheConfig cache;
  cache.block_tokens = 3;
  cache.max_tokens = tokens;
  return cache;
}

// Logits with cached keys and values equal those of the whole sequence at once, however the
// sequence is fed.
TEST(GeneratorTest, CachedLogitsEqualUncachedOnes) {
  for (const Family family : {Family::gpt2, Family::llama, Family::qwen2}) {
    const ModelConfig model = testing::tiny_model(family, 16);
    const testing::TinyRun run(model, 1);
    const testing::TinyBatch batch(model, 1);
    const std::span<const std::int32_t> tokens = batch.tokens;

    Generator once(*run.device, model, run.program->parameters(), cache_for(16));
    Generator pieces(*run.device, model, run.program->parameters(), cache_for(16));
    const std::span<const float> whole = once.feed(tokens);
    pieces.feed(tokens.first(5));
    std::span<const float> last;
    for (std::size_t i = 5; i < 16; ++i) last = pieces.feed(tokens.subspan(i, 1));
    ASSERT_EQ(whole.size(), 64U);
    for (std::size_t i = 0; i < whole.size(); ++i) EXPECT_NEAR(whole[i], last[i], 1e-5F);

    // The loss of the last position alone, from the training path, is that of these logits.
    testing::TinyBatch only_last = batch;
    std::fill(only_last.targets.begin(), only_last.targets.end() - 1, -1);
    Lane& lane = run.program->lane();
    run.program->clear_loss(lane);
    run.program->run_micro_batch(lane, only_last.micro().host, {0, 0}, false);
    double sum = 0;
    for (const float logit : whole) sum += std::exp(static_cast<double>(logit));
    const auto target = static_cast<std::size_t>(only_last.targets.back());
    const double expected = std::log(sum) - static_cast<double>(whole[target]);
    EXPECT_NEAR(run.program->read_loss(lane), expected, 1e-5);
  }
}

TEST(GeneratorTest, RefusesMoreTokensThanTheModelTakes) {
  const ModelConfig model = testing::tiny_model(Family::gpt2, 8);
  const testing::TinyRun run(model, 1);
  Generator generator(*run.device, model, run.program->parameters(), cache_for(100));
  const std::vector<std::int32_t> tokens(9, 1);
  EXPECT_THROW(generator.feed(tokens), Error);
  generator.feed(std::span(tokens).first(8));
  EXPECT_THROW(generator.feed(std::span(tokens).first(1)), Error);
}

}  // namespace
}  // namespace belay
