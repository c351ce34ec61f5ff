// Loss scaling in the step and in the run: exact where nothing overflows, harmless where it does.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "belay/base/allocation_count.h"
#include "belay/precision/gradient_protection.h"
#include "belay/precision/gradient_record.h"
#include "belay/train/tiny_run.h"
#include "belay/train/trainer_harness.h"

namespace belay {
namespace {

using nlohmann::json;
using testing::plain_optimizer;
using testing::tiny_model;
using testing::TinyBatch;
using testing::TinyRun;

// Weights and both moments.
std::vector<std::vector<float>> whole_state(const TinyRun& run) {
  std::vector<std::vector<float>> all = run.all_weights();
  const ParameterStore& store = run.program->parameters();
  for (int index = 0; index < run.table.size(); ++index) {
    for (const Tensor& tensor : {store.m(index), store.v(index)}) {
      all.emplace_back(static_cast<std::size_t>(tensor.elements()));
      ParameterStore::read(run.program->lane(), tensor, all.back());
    }
  }
  return all;
}

// An infinite value in the gradient that the next step adds to.
void poison(const TinyRun& run, const std::string& name) {
  Lane& lane = run.program->lane();
  const float infinity = std::numeric_limits<float>::infinity();
  lane.copy_in(run.program->parameters().grad(run.table.find(name)).data, &infinity,
               sizeof infinity);
  lane.wait();
}

PrecisionConfig dynamic_config() {
  PrecisionConfig config;
  config.loss_scale = LossScaleMode::dynamic;
  return resolved(config, DType::f32);
}

TEST(LossScaleTest, AnyPowerOfTwoGivesTheSameBits) {
  const OptimizerConfig optimizer = plain_optimizer();
  for (const Family family : {Family::gpt2, Family::llama}) {
    const ModelConfig model = tiny_model(family);
    const TinyBatch batch(model, 2);
    for (const DType dtype : {DType::f32, DType::bf16}) {
      std::vector<std::vector<std::vector<float>>> states;
      for (const double multiplier : {1.0, 0x1p-9, 0x1p12, 0x1p40}) {
        TinyRun run(model, 2, "cpu", dtype);
        Stepper stepper(*run.program, optimizer, 10);
        StepResult result;
        for (std::int64_t step = 1; step <= 3; ++step) {
          result = stepper.run(
              step, step, [&] { return batch.micro(); }, multiplier);
          ASSERT_EQ(result.outcome, StepOutcome::updated);
        }
        EXPECT_EQ(result.divisor, multiplier * static_cast<double>(result.counted));
        states.push_back(whole_state(run));
      }
      for (std::size_t i = 1; i < states.size(); ++i) {
        EXPECT_EQ(states[i], states[0]) << name_of(dtype) << " " << i;
      }
    }
  }
}

// With an infinite gradient at every step the scale halves sixteen times and stays at the floor;
// nothing else changes.
TEST(LossScaleTest, EndlessOverflowsReachTheFloorAndChangeNothing) {
  const ModelConfig model = tiny_model(Family::llama);
  TinyRun run(model);
  const TinyBatch batch(model, 2);
  const OptimizerConfig optimizer = plain_optimizer();
  Stepper stepper(*run.program, optimizer, 40);
  GradientProtection protection(dynamic_config(), run.table.names(), 16);
  const auto before = whole_state(run);
  double expected = 65536;
  for (std::int64_t step = 1; step <= 20; ++step) {
    EXPECT_EQ(protection.scaler().scale(), expected);
    poison(run, "layers.1.ffn.up.weight");
    const StepResult result = stepper.run(
        step, 1, [&] { return batch.micro(); }, protection.multiplier());
    ASSERT_EQ(result.outcome, StepOutcome::non_finite);
    EXPECT_EQ(run.table[result.bad_parameter].name, "layers.1.ffn.up.weight");
    protection.overflow(result.squares, result.divisor);
    expected = std::max(expected / 2, 1.0);
  }
  EXPECT_EQ(protection.scaler().scale(), 1.0);
  EXPECT_EQ(protection.scaler().stuck(), 4);
  EXPECT_EQ(whole_state(run), before);
}

TEST(LossScaleTest, OneOverflowCostsOneStepAndOneHalving) {
  const ModelConfig model = tiny_model(Family::llama);
  const TinyBatch batch(model, 2);
  const OptimizerConfig optimizer = plain_optimizer();
  // The second run has no third step at all: what follows must be the same.
  std::vector<std::vector<std::vector<float>>> states;
  for (const bool poisoned : {true, false}) {
    TinyRun run(model);
    Stepper stepper(*run.program, optimizer, 10);
    GradientProtection protection(dynamic_config(), run.table.names(), 16);
    std::int64_t updates = 0;
    for (std::int64_t step = 1; step <= 6; ++step) {
      if (step == 3 && !poisoned) continue;
      if (step == 3) poison(run, "head.weight");
      const StepResult result = stepper.run(
          step, updates + 1, [&] { return batch.micro(); }, protection.multiplier());
      if (result.outcome == StepOutcome::updated) {
        ++updates;
        protection.good_step(result.squares, result.divisor);
      } else {
        EXPECT_EQ(step, 3);
        protection.overflow(result.squares, result.divisor);
      }
    }
    EXPECT_EQ(updates, 5);
    EXPECT_EQ(protection.scaler().scale(), poisoned ? 32768.0 : 65536.0);
    states.push_back(whole_state(run));
  }
  EXPECT_EQ(states[0], states[1]);
}

// An overflow spreads towards the input; the one it started from is named.
TEST(LossScaleTest, TheFirstThatWentWrongIsNamed) {
  const ModelConfig model = tiny_model(Family::llama);
  TinyRun run(model);
  const TinyBatch batch(model, 2);
  const OptimizerConfig optimizer = plain_optimizer();
  Stepper stepper(*run.program, optimizer, 10);
  for (const char* name :
       {"embedding.weight", "layers.0.norm1.weight", "layers.1.attention.out.weight"}) {
    poison(run, name);
  }
  StepResult result = stepper.run(1, 1, [&] { return batch.micro(); });
  EXPECT_EQ(run.table[result.bad_parameter].name, "layers.1.attention.out.weight");

  // A weight that is not finite breaks the forward pass: no gradient is to blame.
  const float nan = std::nanf("");
  Lane& lane = run.program->lane();
  const Tensor weight = run.program->parameters().master(run.table.find("layers.0.ffn.up.weight"));
  lane.copy_in(weight.data, &nan, sizeof nan);
  lane.wait();
  result = stepper.run(2, 1, [&] { return batch.micro(); });
  EXPECT_EQ(result.outcome, StepOutcome::non_finite);
  EXPECT_EQ(result.bad_parameter, -1);
}

TEST(LossScaleTest, AGuardedStepAllocatesNothing) {
  const ModelConfig model = tiny_model(Family::llama);
  TinyRun run(model);
  const TinyBatch batch(model, 2);
  const OptimizerConfig optimizer = plain_optimizer();
  Stepper stepper(*run.program, optimizer, 1000);
  PrecisionConfig config = dynamic_config();
  config.guard_every = 5;
  config.forecast_history = 32;
  config.forecast_block = 1;
  GradientProtection protection(config, run.table.names(), 16);
  const MicroBatchSource source = [&] { return batch.micro(); };
  std::int64_t before = 0;
  for (std::int64_t step = 1; step <= 60; ++step) {
    if (step == 4) before = allocation_count();
    const StepResult result = stepper.run(step, step, source, protection.multiplier());
    protection.good_step(result.squares, result.divisor);
  }
  EXPECT_EQ(allocation_count() - before, 0);
}

class LossScaleRunTest : public testing::TrainerHarness {
 protected:
  // Gradients of this model leave the range of f32 at its first scales.
  [[nodiscard]] RunConfig overflowing(std::vector<std::string> more = {}) const {
    std::vector<std::string> set = {"precision.loss_scale=dynamic",
                                    "precision.scale_init=" + power(127),
                                    "precision.scale_max=" + power(127),
                                    "precision.growth_interval=4",
                                    "precision.guard=false",
                                    "model.init_std=2.0"};
    set.insert(set.end(), more.begin(), more.end());
    return config(set);
  }
  static std::string power(int exponent) { return std::to_string(std::ldexp(1.0, exponent)); }
  [[nodiscard]] static std::vector<json> skips(const std::string& run) {
    std::vector<json> records;
    for (const json& record : records_of(run)) {
      if (record.contains("skipped_tensor")) records.push_back(record);
    }
    return records;
  }
};

TEST_F(LossScaleRunTest, OverflowsAreSkippedNamedAndSurvived) {
  const std::string out = path("run");
  EXPECT_TRUE(train(overflowing(), to(out)).finished);
  const auto records = steps(out);
  const auto skipped = skips(out);
  ASSERT_FALSE(skipped.empty());
  ASSERT_LT(skipped.size(), 12U);
  for (const json& record : skipped) {
    EXPECT_EQ(record["next_scale"].get<double>(), record["skipped_scale"].get<double>() / 2);
    EXPECT_EQ(record["rank"], 0);
    EXPECT_NE(record["skipped_tensor"], "loss");
    const auto tensor = record["skipped_tensor"].get<std::string>();
    EXPECT_TRUE(tensor.starts_with(record["skipped_layer"].get<std::string>())) << tensor;
    EXPECT_EQ(records.at(record["step"].get<std::int64_t>())["loss_scale"],
              record["skipped_scale"]);
  }
  EXPECT_EQ(records.at(15)["steps_skipped"], skipped.size());
  // A skipped step has taken its batch and its place in the schedule.
  train(config({"model.init_std=2.0"}), to(path("plain")));
  const auto plain = steps(path("plain"));
  for (std::int64_t step = 1; step <= 15; ++step) {
    EXPECT_EQ(records.at(step)["lr"], plain.at(step)["lr"]);
    EXPECT_EQ(records.at(step)["tokens"], plain.at(step)["tokens"]);
  }
  const std::string log = read_file(out + "/log.txt");
  const auto tensor = skipped[0]["skipped_tensor"].get<std::string>();
  EXPECT_NE(log.find("rank 0: the gradient of " + tensor), std::string::npos) << log;
}

// In f16 the first scales of this model overflow, to infinity or to saturation; both are found,
// skipped and survived, by default.
TEST_F(LossScaleRunTest, HalfPrecisionSurvivesInBothWorlds) {
  for (const std::string world : {"inf", "saturate"}) {
    const std::string out = path(world);
    const std::vector<std::string> set = {"train.dtype=f16", "precision.overflow=" + world,
                                          "precision.scale_init=" + power(24), "model.init_std=0.5",
                                          "machine.matmul=auto"};
    EXPECT_TRUE(train(config(set), to(out)).finished);
    const auto records = steps(out);
    const auto skipped = skips(out);
    ASSERT_FALSE(skipped.empty()) << world;
    EXPECT_LT(skipped.size(), 14U);
    EXPECT_EQ(records.at(15)["steps_skipped"], skipped.size());
    for (std::int64_t step = 1; step <= 15; ++step) {
      const bool overflowed = records.at(step)["overflowing_ops"].get<std::int64_t>() > 0;
      const bool lost = std::any_of(skipped.begin(), skipped.end(),
                                    [&](const json& skip) { return skip["step"] == step; });
      EXPECT_EQ(overflowed, lost) << world << " step " << step;
    }
    EXPECT_EQ(skipped[0]["skipped_tensor"] == "f16", world == "saturate");
  }
}

TEST_F(LossScaleRunTest, AHopelessRunStopsAtTheFloor) {
  const std::string out = path("run");
  try {
    train(overflowing({"precision.scale_min=" + power(126), "precision.max_skips=3"}), to(out));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::numerics);
    const std::string what = error.what();
    EXPECT_NE(what.find("step 4, rank 0: the gradient of "), std::string::npos) << what;
    EXPECT_NE(what.find("last 3 steps"), std::string::npos) << what;
  }
  EXPECT_EQ(skips(out).size(), 4U);
}

TEST_F(LossScaleRunTest, ResumesBitForBitWithScalerAndGuard) {
  const std::vector<std::string> guarded = {"precision.guard=true",
                                            "precision.guard_every=2",
                                            "precision.guard_window=4",
                                            "precision.guard_patience=2",
                                            "precision.guard_limit=" + power(118),
                                            "precision.forecast=off"};
  const std::string unbroken = path("unbroken");
  train(overflowing(guarded), to(unbroken));
  const auto a = steps(unbroken);
  for (const std::int64_t stop : {2, 5, 8, 13}) {
    const std::string out = path("cut-" + std::to_string(stop));
    train(overflowing(guarded), to(out, stop));
    EXPECT_TRUE(train(overflowing(guarded), to(out, 0, "auto")).finished);
    const auto b = steps(out);
    ASSERT_EQ(b.size(), 15U);
    for (std::int64_t step = 1; step <= 15; ++step) {
      for (const char* field : {"loss", "grad_norm", "loss_scale", "steps_skipped", "lr"}) {
        EXPECT_EQ(a.at(step)[field], b.at(step)[field]) << stop << " " << step << " " << field;
      }
    }
    EXPECT_EQ(read_file(out + "/gradient-norms.bin"), read_file(unbroken + "/gradient-norms.bin"));
  }
  // The guard has lowered the scale without losing a step for it.
  std::int64_t early = 0;
  for (std::int64_t step = 2; step <= 15; ++step) {
    if (a.at(step)["loss_scale"].get<double>() < a.at(step - 1)["loss_scale"].get<double>() &&
        a.at(step - 1)["grad_norm"].is_number()) {
      ++early;
    }
  }
  EXPECT_GT(early, 0);
}

TEST_F(LossScaleRunTest, AStaticScaleChangesNoBit) {
  train(config(), to(path("none")));
  train(config({"precision.loss_scale=static", "precision.scale_init=1024.0"}), to(path("static")));
  const auto a = steps(path("none"));
  const auto b = steps(path("static"));
  for (std::int64_t step = 1; step <= 15; ++step) {
    EXPECT_EQ(a.at(step)["loss"], b.at(step)["loss"]);
    EXPECT_EQ(a.at(step)["grad_norm"], b.at(step)["grad_norm"]);
    EXPECT_EQ(a.at(step)["loss_scale"], 1.0);
    EXPECT_EQ(b.at(step)["loss_scale"], 1024.0);
  }
  // Only the scale's own column differs: the norms are unscaled.
  const GradientRecord one = read_gradient_record(path("none") + "/gradient-norms.bin");
  const GradientRecord other = read_gradient_record(path("static") + "/gradient-norms.bin");
  EXPECT_EQ(one.codes, other.codes);
  EXPECT_EQ(one.steps.size(), 15U);
  EXPECT_EQ(one.layers,
            (std::vector<std::string>{"embedding", "layers.0", "layers.1", "final_norm", "head"}));
  EXPECT_EQ(other.log2_scale[3], 10);
}

TEST_F(LossScaleRunTest, TheRecordCanBeLeftOut) {
  train(config({"precision.record_norms=false"}), to(path("run"), 2));
  EXPECT_FALSE(std::filesystem::exists(path("run") + "/gradient-norms.bin"));
}

TEST_F(LossScaleRunTest, ScalesOnTheGuardDevice) {
  const std::vector<std::string> set = {"precision.loss_scale=dynamic", "train.steps=3",
                                        "machine.matmul=auto"};
  auto guard = set;
  guard.emplace_back("train.device=guard");
  auto reference = set;
  reference.emplace_back("train.device=reference");
  train(config(guard), to(path("guard")));
  train(config(reference), to(path("reference")));
  EXPECT_EQ(steps(path("guard")).at(3)["loss"], steps(path("reference")).at(3)["loss"]);
}

TEST_F(LossScaleRunTest, PowerOfTwoClippingIsCheckedAndKept) {
  EXPECT_THROW(
      static_cast<void>(config({"optimizer.clip_power_of_two=true", "optimizer.clip_norm=0.3"})),
      Error);
  const std::string out = path("run");
  const std::vector<std::string> set = {"optimizer.clip_power_of_two=true",
                                        "optimizer.clip_norm=0.25"};
  train(config(set), to(out, 4));
  EXPECT_THROW(train(config({"optimizer.clip_norm=0.25"}), to(out, 0, "auto")), Error);
  EXPECT_TRUE(train(config(set), to(out, 0, "auto")).finished);
}

}  // namespace
}  // namespace belay
