// Training steps in f16, in both worlds of overflow.

#include <gtest/gtest.h>

#include <cmath>

#include "belay/device/finite.h"
#include "belay/precision/arithmetic_config.h"
#include "belay/train/tiny_run.h"

namespace belay {
namespace {

using testing::tiny_model;
using testing::TinyBatch;
using testing::TinyRun;

class F16TrainingTest : public ::testing::TestWithParam<const char*> {};

// Rounded to 11 bits everywhere, the steps stay beside those of f32.
TEST_P(F16TrainingTest, FollowsF32) {
  const ModelConfig model = in_precision(tiny_model(Family::qwen2), DType::f16);
  const TinyBatch batch(model, 2);
  const OptimizerConfig optimizer = testing::plain_optimizer();
  TinyRun full(model, 2, GetParam());
  TinyRun half(model, 2, GetParam(), DType::f16);
  Stepper full_steps(*full.program, optimizer, 20);
  Stepper half_steps(*half.program, optimizer, 20);
  StepResult first;
  StepResult last;
  for (std::int64_t step = 1; step <= 12; ++step) {
    const StepResult want = full_steps.run(step, step, [&] { return batch.micro(); });
    last = half_steps.run(step, step, [&] { return batch.micro(); });
    if (step == 1) first = last;
    ASSERT_EQ(last.outcome, StepOutcome::updated);
    EXPECT_NEAR(last.loss, want.loss, 1e-3 * want.loss);
    EXPECT_EQ(last.ops.overflowing, 0);
    EXPECT_GT(last.ops.low_precision, 0);
    EXPECT_GT(last.ops.full_precision, 0);
    EXPECT_EQ(want.ops.low_precision, 0);
    EXPECT_EQ(want.ops.full_precision, last.ops.low_precision + last.ops.full_precision);
  }
  EXPECT_LT(last.loss, first.loss - 0.1);
}

// Without protections the same operators run in 16 bits, and the loss stays close on a model whose
// numbers are small.
TEST_P(F16TrainingTest, ProtectionsCanBeSwitchedOff) {
  const ModelConfig model = in_precision(tiny_model(Family::gpt2), DType::f16);
  const TinyBatch batch(model, 2);
  const OptimizerConfig optimizer = testing::plain_optimizer();
  StepResult results[2];
  for (const bool protect : {false, true}) {
    TinyRun run(model, 2, GetParam(), DType::f16, {protect, protect, protect});
    Stepper stepper(*run.program, optimizer, 20);
    for (std::int64_t step = 1; step <= 3; ++step) {
      results[protect] = stepper.run(step, step, [&] { return batch.micro(); });
    }
    EXPECT_EQ(results[protect].outcome, StepOutcome::updated);
  }
  EXPECT_NEAR(results[0].loss, results[1].loss, 3e-3);
  EXPECT_NE(results[0].loss, results[1].loss);
  EXPECT_GT(results[0].ops.low_precision, results[1].ops.low_precision);
}

// Remembers whether any result of any type was not finite.
class FiniteOnly final : public OpRecorder, public ResultVisitor {
 public:
  void record(const OpCall& call, std::chrono::steady_clock::time_point,
              std::chrono::steady_clock::time_point) override {
    op_ = call.op;
    call.visit_results(call, *this);
  }
  void result(std::string_view name, const Rows& rows) override {
    if (!has_non_finite(rows)) return;
    bad_ += std::string(op_) + " " + std::string(name) + "; ";
  }
  [[nodiscard]] const std::string& bad() const { return bad_; }

 private:
  std::string_view op_;
  std::string bad_;
};

// Weights so large that sums overflow everywhere.
TEST_P(F16TrainingTest, AWorldWithoutInfinitiesHasNone) {
  for (const Overflow overflow : {Overflow::infinity, Overflow::saturate}) {
    const ModelConfig model = tiny_model(Family::gpt2);
    const TinyBatch batch(model, 2);
    TinyRun run(model, 2, GetParam(), DType::f16);
    run.device->set_overflow(overflow);
    for (int index = 0; index < run.table.size(); ++index) {
      if (!run.table[index].compute_copy) continue;
      std::vector<float> values = run.read(index);
      for (float& value : values) value *= 3e4F;
      ParameterStore::write(run.program->lane(), run.program->parameters().master(index), values);
    }
    run.program->parameters().refresh_copies(run.program->lane());
    FiniteOnly watch;
    run.program->lane().set_recorder(&watch);
    const OptimizerConfig optimizer = testing::plain_optimizer();
    Stepper stepper(*run.program, optimizer, 20);
    const StepResult result = stepper.run(1, 1, [&] { return batch.micro(); });
    EXPECT_GT(result.ops.overflowing, 0);
    if (overflow == Overflow::saturate) {
      EXPECT_EQ(watch.bad(), "");
      EXPECT_EQ(result.outcome, StepOutcome::updated);
    } else {
      EXPECT_NE(watch.bad(), "");
      EXPECT_EQ(result.outcome, StepOutcome::non_finite);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, F16TrainingTest, ::testing::Values("cpu", "reference", "guard"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace belay
