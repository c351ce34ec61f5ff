#include "belay/train/trainer.h"

#include <gtest/gtest.h>

#include <cmath>

#include "belay/base/log.h"
#include "belay/data/store_writer.h"
#include "belay/snapshot/hf_config.h"
#include "belay/train/run_lock.h"
#include "belay/train/trainer_harness.h"

namespace belay {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

using TrainerTest = testing::TrainerHarness;

TEST_F(TrainerTest, WritesTheRunDirectory) {
  const std::string out = path("run");
  TrainOptions options = to(out);
  options.timeline_first = 2;
  options.timeline_last = 3;
  const TrainSummary summary = train(config({"train.eval_every=5"}), options);
  EXPECT_TRUE(summary.finished);
  EXPECT_EQ(summary.last_step, 15);
  ASSERT_TRUE(summary.val_loss.has_value());
  for (const char* name : {"config.toml", "plan.json", "metrics.jsonl", "summary.json", "log.txt",
                           "timeline-2-3.json", "snapshots/step-00000015/manifest.json"}) {
    EXPECT_TRUE(fs::exists(fs::path(out) / name)) << name;
  }
  const auto records = steps(out);
  ASSERT_EQ(records.size(), 15U);
  for (const char* field :
       {"step", "tokens", "loss", "lr", "grad_norm", "step_ms", "data_ms", "forward_ms",
        "backward_ms", "optimizer_ms", "tokens_per_s", "model_flops_per_s", "rss_bytes"}) {
    EXPECT_TRUE(records.at(7).contains(field)) << field;
  }
  EXPECT_EQ(records.at(15)["tokens"], 15 * 2 * 16);
  EXPECT_LT(records.at(15)["loss"].get<double>(), records.at(1)["loss"].get<double>());
  const json plan = json::parse(std::ifstream(fs::path(out) / "plan.json"));
  EXPECT_GT(plan["predicted"]["step_ms"].get<double>(), 0.0);
  EXPECT_GT(plan["memory_bytes"]["activations"].get<std::int64_t>(), 0);
  EXPECT_FALSE(plan["matmuls"].empty());
  const json trace = json::parse(std::ifstream(fs::path(out) / "timeline-2-3.json"));
  EXPECT_GT(trace["traceEvents"].size(), 50U);
  // The effective configuration reads back to itself.
  const std::string effective = (fs::path(out) / "config.toml").string();
  EXPECT_EQ(to_toml(load_config(effective, {})), read_file(effective));
}

// Ten samples, global batch 2, three epochs: wherever the run stops, the resumed one takes the same
// samples and gets the same bits.
TEST_F(TrainerTest, ResumeIsBitExactWhereverItStops) {
  for (const std::string dtype : {"f32", "bf16", "f16"}) {
    const std::vector<std::string> set = {"train.dtype=" + dtype};
    const std::string unbroken = path("unbroken-" + dtype);
    train(config(set), to(unbroken));
    for (const std::int64_t stop : {3, 5, 7, 12}) {
      const std::string out = path("cut-" + dtype + std::to_string(stop));
      std::vector<std::string> all = set;
      all.emplace_back(stop % 5 == 2 ? "data.workers=0" : "data.workers=2");
      EXPECT_FALSE(train(config(all), to(out, stop)).finished);
      EXPECT_TRUE(train(config(all), to(out, 0, "auto")).finished);
      const auto a = steps(unbroken);
      const auto b = steps(out);
      ASSERT_EQ(b.size(), 15U);
      for (std::int64_t step = 1; step <= 15; ++step) {
        EXPECT_EQ(a.at(step)["loss"], b.at(step)["loss"]) << step;
        EXPECT_EQ(a.at(step)["grad_norm"], b.at(step)["grad_norm"]) << step;
        EXPECT_EQ(a.at(step)["lr"], b.at(step)["lr"]) << step;
        EXPECT_EQ(a.at(step)["tokens"], b.at(step)["tokens"]) << step;
      }
    }
  }
}

TEST_F(TrainerTest, EvaluationChangesNoTrainingBit) {
  train(config(), to(path("without")));
  train(config({"train.eval_every=2"}), to(path("with")));
  const auto a = steps(path("without"));
  const auto b = steps(path("with"));
  for (std::int64_t step = 1; step <= 15; ++step) {
    EXPECT_EQ(a.at(step)["loss"], b.at(step)["loss"]);
  }
}

// The first rows of the validation data hold documents of a single token.
TEST_F(TrainerTest, AnEvaluationWithoutLabelsHasNoLoss) {
  data::StoreWriterOptions store;
  store.out = path("val-store");
  data::StoreWriter writer(store);
  std::vector<std::int32_t> ids(100, 5);
  for (int document = 0; document < 32; ++document) {
    writer.append(std::span(ids).first(1));
    writer.end_document();
  }
  writer.append(ids);
  writer.end_document();
  writer.finish({}, nullptr);
  writer.publish();
  const std::string val = "data.val=\"" + store.out + "\"";
  const TrainSummary summary =
      train(config({val, "train.eval_batches=1", "train.steps=5"}), to(path("run")));
  EXPECT_FALSE(summary.val_loss.has_value());
  const json record = records_of(path("run")).at(5);
  EXPECT_TRUE(record["val_loss"].is_null()) << record;
  EXPECT_EQ(record["val_tokens"], 0);
  EXPECT_TRUE(train(config({val, "train.steps=5"}), to(path("all"))).val_loss.has_value());
}

TEST_F(TrainerTest, AChangedCurveNeedsTheUsersWord) {
  const std::string out = path("run");
  train(config(), to(out, 8));
  EXPECT_THROW(train(config({"optimizer.lr=5e-4"}), to(out, 0, "auto")), Error);
  TrainOptions options = to(out, 0, "auto");
  options.allow_new_optimizer = true;
  train(config({"optimizer.lr=5e-4"}), options);
  const auto records = steps(out);
  const ScheduleConfig curve{ScheduleKind::cosine, 5e-4, 1e-4, 3, 15, 0};
  EXPECT_NEAR(records.at(9)["lr"].get<double>(), learning_rate(curve, 9), 1e-12);
}

TEST_F(TrainerTest, RefusesToOverwriteARunOrToResumeAnother) {
  const std::string out = path("run");
  train(config(), to(out, 4));
  EXPECT_THROW(train(config(), to(out)), Error);
  EXPECT_THROW(train(config({"train.seed=2"}), to(out, 0, "auto")), Error);
  EXPECT_THROW(train(config({"train.dtype=bf16"}), to(out, 0, "auto")), Error);
  EXPECT_THROW(train(config({"model.ffn=48"}), to(out, 0, "auto")), Error);
}

TEST_F(TrainerTest, TheLogFileHoldsWhatAQuietConsoleDoesNot) {
  log::set_level(log::Level::error);
  train(config(), to(path("run"), 2));
  log::set_level(log::Level::info);
  const std::string text = read_file(path("run/log.txt"));
  EXPECT_NE(text.find("memory plan"), std::string::npos) << text;
}

TEST_F(TrainerTest, OneTrainingPerRunDirectory) {
  const std::string out = path("run");
  fs::create_directories(out);
  const RunLock lock(out);
  try {
    train(config(), to(out));
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(std::to_string(::getpid())), std::string::npos);
  }
  EXPECT_FALSE(fs::exists(fs::path(out) / "metrics.jsonl"));
}

TEST_F(TrainerTest, ATimelineThatTheRunCutsShortIsWrittenAllTheSame) {
  TrainOptions options = to(path("run"), 4);
  options.timeline_first = 3;
  options.timeline_last = 9;
  train(config(), options);
  EXPECT_TRUE(fs::exists(path("run") + "/timeline-3-4.json"));
}

TEST_F(TrainerTest, RefusesIdsBeyondTheVocabulary) {
  try {
    train(config({"model.vocab=63"}), to(path("run")));
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("train.bin"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("63"), std::string::npos);
  }
}

TEST_F(TrainerTest, RunsOnTheGuardDevice) {
  const TrainSummary summary = train(
      config({"train.device=guard", "train.steps=3", "machine.matmul=auto"}), to(path("guard")));
  EXPECT_TRUE(summary.finished);
  train(config({"train.device=reference", "train.steps=3", "machine.matmul=auto"}),
        to(path("reference")));
  EXPECT_EQ(steps(path("guard")).at(3)["loss"], steps(path("reference")).at(3)["loss"]);
}

// Training from a snapshot's directory as a Hugging Face model continues from its weights.
TEST_F(TrainerTest, StartsFromWeightsOnDisk) {
  const TrainSummary first = train(config(), to(path("first")));
  train(config({"model.path=\"" + first.snapshot + "\"", "train.steps=4"}), to(path("second")));
  EXPECT_LT(steps(path("second")).at(1)["loss"].get<double>(),
            steps(path("first")).at(2)["loss"].get<double>());
}

TEST_F(TrainerTest, WhatContradictsTheModelOnDiskIsRefused) {
  const std::string snapshot = train(config(), to(path("first"), 1)).snapshot;
  const auto refusal = [&](const std::string& key) -> std::string {
    try {
      train(config({"model.path=\"" + snapshot + "\"", key}), to(path("second")));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::usage);
      return error.what();
    }
    return "";
  };
  EXPECT_NE(refusal("model.layers=3").find("model.layers is 3 but"), std::string::npos);
  EXPECT_NE(refusal("model.family=gpt2"), "");
  EXPECT_EQ(refusal("model.dropout=0.1"), "");
}

TEST_F(TrainerTest, DynamicScalingNeedsTheLengthItStartsFrom) {
  EXPECT_THROW(train(config({"model.rope_scaling=dynamic"}), to(path("run"))), Error);
  train(config({"model.rope_scaling=dynamic", "model.rope_original_seq_len=8"}),
        to(path("run"), 1));
}

TEST_F(TrainerTest, AModelThatItsSnapshotsCannotSayIsRefusedAtStart) {
  try {
    train(config({"model.attention_bias=true"}), to(path("run")));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_NE(std::string(error.what()).find("attention_out_bias is true and false"),
              std::string::npos)
        << error.what();
  }
  EXPECT_FALSE(fs::exists(path("run") + "/metrics.jsonl"));
  // As a pair they can be said.
  const std::vector<std::string> both = {"model.attention_bias=true",
                                         "model.attention_out_bias=true"};
  train(config(both), to(path("run"), 2));
  EXPECT_TRUE(train(config(both), to(path("run"), 0, "auto")).finished);
}

// The model that was trained, with the norms' eps that half precision needs.
TEST_F(TrainerTest, ASnapshotHasTheModelAsItComputes) {
  const auto eps_of = [&](const std::vector<std::string>& overrides, const std::string& out) {
    return load_hf_config(train(config(overrides), to(path(out), 1)).snapshot).norm_eps;
  };
  EXPECT_EQ(eps_of({}, "full"), 1e-5);
  EXPECT_EQ(eps_of({"train.dtype=f16"}, "half"), 1e-4);
  EXPECT_EQ(eps_of({"train.dtype=f16", "precision.norm_eps_floor=1e-3"}, "floor"), 1e-3);
  EXPECT_TRUE(train(config({"train.dtype=f16"}), to(path("half"), 0, "auto")).finished);
  // Training in another type starts from it as it is.
  EXPECT_EQ(eps_of({"model.path=\"" + path("half") + "/snapshots/step-00000001\""}, "next"), 1e-4);
}

}  // namespace
}  // namespace belay
