#include "belay/train/step.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "belay/train/tiny_run.h"

namespace belay {
namespace {

using testing::plain_optimizer;
using testing::tiny_model;
using testing::TinyBatch;
using testing::TinyRun;

double largest_difference(const std::vector<std::vector<float>>& a,
                          const std::vector<std::vector<float>>& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    for (std::size_t j = 0; j < a[i].size(); ++j) {
      largest = std::max(largest, std::abs(static_cast<double>(a[i][j] - b[i][j])));
    }
  }
  return largest;
}

TEST(ClipTest, FollowsTheNormAndIsExactForHugeGradients) {
  EXPECT_EQ(clip_coefficient(0.5, 1.0), 1.0);
  EXPECT_NEAR(clip_coefficient(4.0, 1.0), 0.25, 1e-6);
  EXPECT_NEAR(1e20 * clip_coefficient(1e21, 1.0), 0.1, 1e-12);
  EXPECT_EQ(clip_coefficient(100.0, 0.0), 1.0);
}

TEST(ClipTest, PowersOfTwoRoundDown) {
  EXPECT_EQ(clip_coefficient(0.5, 1.0, true), 1.0);
  EXPECT_EQ(clip_coefficient(3.0, 1.0, true), 0.25);
  EXPECT_EQ(clip_coefficient(1.5, 1.0, true), 0.5);
  EXPECT_EQ(clip_coefficient(100.0, 0.0, true), 1.0);
  for (double norm = 1.1; norm < 1e12; norm *= 3.7) {
    const double factor = clip_coefficient(norm, 1.0, true);
    int exponent = 0;
    EXPECT_EQ(std::frexp(factor, &exponent), 0.5);
    EXPECT_LE(factor * norm, 1.0);
    EXPECT_GT(factor * norm, 0.49);
  }
}

// The loss and the update depend on the tokens, not on how they are cut into micro-batches, even
// when the pieces count differently many tokens.
TEST(StepTest, AccumulationEqualsOneBatch) {
  const ModelConfig model = tiny_model(Family::llama);
  TinyBatch batch(model, 4);
  for (std::size_t i = 2; i < 14; ++i) batch.targets[i] = -1;  // row 0 counts 2, row 1 counts 2
  const OptimizerConfig optimizer = plain_optimizer();

  TinyRun whole(model, 4);
  const StepResult one =
      Stepper(*whole.program, optimizer, 10).run(1, 1, [&] { return batch.micro(); });

  TinyRun cut(model, 1);
  std::int64_t next = 0;
  const StepResult four =
      Stepper(*cut.program, optimizer, 10, BatchShare{.micro_batches = 4}).run(1, 1, [&] {
        const MicroBatch micro = batch.micro(next, next + 1);
        ++next;
        return micro;
      });
  EXPECT_EQ(one.counted, 20);
  EXPECT_EQ(four.counted, 20);
  EXPECT_NEAR(four.loss, one.loss, 1e-6 * one.loss);
  EXPECT_NEAR(four.grad_norm, one.grad_norm, 1e-5 * one.grad_norm);
  EXPECT_LT(largest_difference(whole.all_weights(), cut.all_weights()), 2e-5);
}

TEST(StepTest, ABatchWithoutLabelsChangesNothing) {
  const ModelConfig model = tiny_model(Family::gpt2);
  TinyRun run(model);
  TinyBatch batch(model, 2);
  const OptimizerConfig optimizer = plain_optimizer();
  Stepper stepper(*run.program, optimizer, 10);
  EXPECT_EQ(stepper.run(1, 1, [&] { return batch.micro(); }).outcome, StepOutcome::updated);
  const auto before = run.all_weights();

  TinyBatch empty = batch;
  std::fill(empty.targets.begin(), empty.targets.end(), -1);
  EXPECT_EQ(stepper.run(2, 2, [&] { return empty.micro(); }).outcome, StepOutcome::no_labels);
  EXPECT_EQ(run.all_weights(), before);

  const StepResult after = stepper.run(3, 2, [&] { return batch.micro(); });
  EXPECT_EQ(after.outcome, StepOutcome::updated);
  EXPECT_TRUE(std::isfinite(after.loss));
}

TEST(StepTest, ANonFiniteGradientSkipsTheStepAndNamesTheTensor) {
  const ModelConfig model = tiny_model(Family::llama);
  TinyRun run(model);
  const TinyBatch batch(model, 2);
  const OptimizerConfig optimizer = plain_optimizer();
  Stepper stepper(*run.program, optimizer, 10);

  // An infinite value in one gradient before the step, which adds to it.
  const int poisoned = run.table.find("layers.1.ffn.up.weight");
  Lane& lane = run.program->lane();
  const float infinity = std::numeric_limits<float>::infinity();
  lane.copy_in(run.program->parameters().grad(poisoned).data, &infinity, sizeof infinity);
  lane.wait();
  const auto before = run.all_weights();
  const StepResult bad = stepper.run(1, 1, [&] { return batch.micro(); });
  EXPECT_EQ(bad.outcome, StepOutcome::non_finite);
  EXPECT_EQ(bad.bad_parameter, poisoned);
  EXPECT_EQ(run.all_weights(), before);
  // The gradients were cleared: the next step is as if nothing had happened.
  TinyRun fresh(model);
  const StepResult expected =
      Stepper(*fresh.program, optimizer, 10).run(2, 1, [&] { return batch.micro(); });
  const StepResult good = stepper.run(2, 1, [&] { return batch.micro(); });
  EXPECT_EQ(good.outcome, StepOutcome::updated);
  EXPECT_EQ(good.loss, expected.loss);
  EXPECT_EQ(run.all_weights(), fresh.all_weights());
}

// Padding: own segment, target -1. Its tokens change neither loss nor any gradient by a single bit.
TEST(StepTest, PaddingContributesExactlyNothing) {
  for (const Family family : {Family::gpt2, Family::llama}) {
    const ModelConfig model = tiny_model(family);
    TinyBatch batch(model, 2);
    for (const std::size_t pad : {5U, 6U, 7U, 15U}) {
      batch.targets[pad] = -1;
      batch.positions[pad] = 0;
      batch.doc_begin[pad] = static_cast<std::int32_t>(pad % 8);
    }
    TinyBatch other = batch;
    for (const std::size_t pad : {5U, 6U, 7U, 15U}) other.tokens[pad] = 63 - other.tokens[pad];
    const OptimizerConfig optimizer = plain_optimizer();
    TinyRun a(model);
    TinyRun b(model);
    const StepResult one =
        Stepper(*a.program, optimizer, 10).run(1, 1, [&] { return batch.micro(); });
    const StepResult two =
        Stepper(*b.program, optimizer, 10).run(1, 1, [&] { return other.micro(); });
    EXPECT_EQ(one.loss, two.loss);
    EXPECT_EQ(one.grad_norm, two.grad_norm);
    EXPECT_EQ(a.all_weights(), b.all_weights());
  }
}

// Same losses on every device; the guard device would fault on any host access to its memory.
TEST(StepTest, TheWholeStepRunsOnEveryDevice) {
  for (const Family family : {Family::gpt2, Family::llama, Family::qwen2}) {
    ModelConfig model = tiny_model(family);
    model.dropout = 0.1;
    const TinyBatch batch(model, 2);
    const OptimizerConfig optimizer = plain_optimizer();
    std::vector<std::vector<double>> losses;
    for (const char* name : {"cpu", "reference", "guard"}) {
      TinyRun run(model, 2, name);
      Stepper stepper(*run.program, optimizer, 10);
      losses.emplace_back();
      for (std::int64_t step = 1; step <= 3; ++step) {
        losses.back().push_back(stepper.run(step, step, [&] { return batch.micro(); }).loss);
      }
    }
    EXPECT_EQ(losses[1], losses[2]);
    for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(losses[0][i], losses[1][i], 2e-5);
    EXPECT_LT(losses[0][2], losses[0][0]);
  }
}

TEST(StepTest, RepeatingARunGivesTheSameBits) {
  const ModelConfig model = tiny_model(Family::llama);
  const TinyBatch batch(model, 2);
  const OptimizerConfig optimizer = plain_optimizer();
  std::vector<std::vector<std::vector<float>>> weights;
  for (int repeat = 0; repeat < 2; ++repeat) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      TinyRun run(model, 2, "cpu", dtype);
      Stepper stepper(*run.program, optimizer, 10);
      for (std::int64_t step = 1; step <= 3; ++step) {
        stepper.run(step, step, [&] { return batch.micro(); });
      }
      weights.push_back(run.all_weights());
    }
  }
  EXPECT_EQ(weights[0], weights[3]);
  EXPECT_EQ(weights[1], weights[4]);
  EXPECT_EQ(weights[2], weights[5]);
  EXPECT_LT(largest_difference(weights[0], weights[1]), 5e-3);
  EXPECT_LT(largest_difference(weights[0], weights[2]), 5e-3);
}

// Dropout draws by position in the global batch: cutting it differently draws the same masks.
TEST(StepTest, DropoutDoesNotDependOnTheMicroBatch) {
  ModelConfig model = tiny_model(Family::gpt2);
  model.dropout = 0.2;
  const TinyBatch batch(model, 4);
  const OptimizerConfig optimizer = plain_optimizer();
  TinyRun whole(model, 4);
  TinyRun cut(model, 2);
  std::int64_t next = 0;
  const StepResult one =
      Stepper(*whole.program, optimizer, 10).run(1, 1, [&] { return batch.micro(); });
  const StepResult two =
      Stepper(*cut.program, optimizer, 10, BatchShare{.micro_batches = 2}).run(1, 1, [&] {
        next += 2;
        return batch.micro(next - 2, next);
      });
  EXPECT_NEAR(one.loss, two.loss, 1e-6 * one.loss);
}

}  // namespace
}  // namespace belay
