#include "belay/train/run_config.h"

#include <gtest/gtest.h>

#include "belay/base/error.h"

namespace belay {
namespace {

template <class Call>
std::string usage_error(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    return error.what();
  }
  return "";
}

std::string batch_error(TrainConfig config, std::int64_t ranks) {
  return usage_error([&] { resolve_batch(config, ranks); });
}

TEST(BatchTest, MissingSizesAreDerived) {
  TrainConfig config{.global_batch = 16};
  resolve_batch(config, 2);
  EXPECT_EQ(config.micro_batch, 8);
  EXPECT_EQ(config.accumulation, 1);

  config = {.micro_batch = 4, .global_batch = 24};
  resolve_batch(config, 2);
  EXPECT_EQ(config.accumulation, 3);

  config = {.micro_batch = 4, .accumulation = 3};
  resolve_batch(config, 2);
  EXPECT_EQ(config.global_batch, 24);

  config = {};
  resolve_batch(config, 1);
  EXPECT_EQ(config.micro_batch, 8);
  EXPECT_EQ(config.global_batch, 8);
}

TEST(BatchTest, WhatDoesNotDivideIsRefusedWithAllFourNumbers) {
  const std::string remainder = batch_error({.micro_batch = 4, .global_batch = 10}, 2);
  EXPECT_EQ(remainder,
            "train.global_batch does not divide: global_batch 10, micro_batch 4, accumulation 0, "
            "data-parallel ranks 2 leaves a remainder of 2 over 4 (0: not given); nearest valid "
            "global_batch: 8 and 12");
  const std::string product =
      batch_error({.micro_batch = 2, .global_batch = 16, .accumulation = 2}, 2);
  EXPECT_EQ(product,
            "train.global_batch is 16 but micro_batch x accumulation x ranks is 8 (global_batch "
            "16, micro_batch 2, accumulation 2, data-parallel ranks 2); drop one of the three or "
            "set global_batch = 8");
  EXPECT_NE(batch_error({.global_batch = 3}, 2), "");
  EXPECT_NE(batch_error({.micro_batch = 8, .global_batch = 4}, 1), "");
}

TEST(RunConfigTest, TheFamilySetsDefaultsWhereverItStands) {
  const RunConfig gpt2 = parse_config("[model]\nlayers = 2\nfamily = \"gpt2\"\n", "t", {});
  const ModelConfig expected = family_defaults(Family::gpt2);
  EXPECT_EQ(gpt2.model.family, Family::gpt2);
  EXPECT_EQ(gpt2.model.tie_embeddings, expected.tie_embeddings);
  EXPECT_EQ(gpt2.model.activation, expected.activation);
  EXPECT_EQ(gpt2.model.layers, 2);
  const RunConfig qwen = parse_config("", "t", {"model.family=qwen2"});
  EXPECT_EQ(qwen.model.rope.theta, family_defaults(Family::qwen2).rope.theta);
}

TEST(RunConfigTest, ReadsTheDocumentedExample) {
  const RunConfig config = parse_config(
      "[model]\nfamily = \"llama\"\nlayers = 6\nhidden = 256\nheads = 8\nkv_heads = 4\n"
      "head_dim = 32\nffn = 704\nvocab = 8192\nseq_len = 256\ntie_embeddings = true\n"
      "norm_eps = 1e-5\nrope_theta = 10000.0\ndropout = 0.0\n"
      "[data]\ntrain = \"data/train\"\nval = \"data/val\"\n"
      "[train]\nsteps = 1000\nmicro_batch = 8\nglobal_batch = 16\ndtype = \"bf16\"\nseed = 1\n"
      "log_every = 1\neval_every = 100\nsnapshot_every = 200\n"
      "[optimizer]\nlr = 1e-3\nmin_lr = 1e-4\nschedule = \"cosine\"\nwarmup_steps = 20\n"
      "betas = [0.9, 0.95]\neps = 1e-8\nweight_decay = 0.1\nclip_norm = 1.0\n"
      "[parallel]\ntensor = 1\npipeline = 1\nsequence_parallel = false\nzero = 0\n"
      "pipeline_schedule = \"1f1b\"\nrecompute = \"none\"\n",
      "t", {"optimizer.lr=2e-3"});
  EXPECT_EQ(config.train.accumulation, 2);
  EXPECT_EQ(config.train.dtype, DType::bf16);
  EXPECT_EQ(config.optimizer.lr, 2e-3);
  EXPECT_EQ(config.model.kv_heads, 4);
  // The effective configuration means the same run.
  EXPECT_EQ(to_toml(parse_config(to_toml(config), "effective", {})), to_toml(config));
}

TEST(RunConfigTest, EveryModelChoiceIsSpelledAsItsNameIs) {
  for (const Family family : {Family::gpt2, Family::llama, Family::qwen2}) {
    const std::string set = "model.family=" + std::string(name_of(family));
    EXPECT_EQ(parse_config("", "t", {set}).model.family, family);
  }
  for (const RopeScaling scaling : {RopeScaling::none, RopeScaling::linear, RopeScaling::dynamic,
                                    RopeScaling::yarn, RopeScaling::llama3}) {
    const std::string set = "model.rope_scaling=" + std::string(name_of(scaling));
    EXPECT_EQ(parse_config("", "t", {set}).model.rope.scaling, scaling);
  }
  for (const ScheduleKind kind :
       {ScheduleKind::constant, ScheduleKind::linear, ScheduleKind::cosine, ScheduleKind::wsd}) {
    const std::string set = "optimizer.schedule=" + std::string(name_of(kind));
    EXPECT_EQ(parse_config("", "t", {set}).optimizer.schedule, kind);
  }
}

TEST(RunConfigTest, WhatNeedsMoreProcessesIsRefusedClearly) {
  EXPECT_EQ(usage_error([] { parse_config("[parallel]\ntensor = 2\n", "t", {}); }),
            "parallel.tensor = 2: this version trains data-parallel only; set parallel.tensor = 1");
  EXPECT_NE(usage_error([] { parse_config("[parallel]\nsequence_parallel = true\n", "t", {}); }),
            "");
  EXPECT_NE(usage_error([] { parse_config("[parallel]\nzero = 4\n", "t", {}); }), "");
}

TEST(RunConfigTest, NumbersHaveBoundsThatTheEngineCanHold) {
  EXPECT_NE(usage_error([] { parse_config("[train]\nsteps = 5000000000\n", "t", {}); }), "");
  EXPECT_NE(usage_error([] { parse_config("[train]\nmicro_batch = 99999999999\n", "t", {}); }), "");
}

TEST(RunConfigTest, EvaluationNeedsData) {
  EXPECT_NE(usage_error([] { parse_config("[train]\neval_every = 5\n", "t", {}); }), "");
}

TEST(RunConfigTest, PipelinesNeedOverlapAndRefuseStableOrder) {
  const auto error = [](const std::string& also) {
    return usage_error([&] { parse_config("[comm]\npipeline_depth = 8\n" + also, "test", {}, 2); });
  };
  EXPECT_EQ(error(""), "");
  EXPECT_NE(error("overlap = false").find("comm.overlap = false"), std::string::npos);
  EXPECT_NE(error("order_stable = true\n[train]\nmicro_batch = 1").find("comm.pipeline_depth = 0"),
            std::string::npos);
  EXPECT_NE(error("compression = \"topk\"").find("comm.compression"), std::string::npos);
  const std::string faults =
      usage_error([] { parse_config("[comm]\ninject = \"link 0-7 drop\"\n", "test", {}, 2); });
  EXPECT_NE(faults.find("there are 2 ranks"), std::string::npos) << faults;
}

}  // namespace
}  // namespace belay
