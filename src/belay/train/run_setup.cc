#include "belay/train/run_setup.h"

#include <algorithm>

#include "belay/base/error.h"
#include "belay/base/parallel.h"
#include "belay/model/model_fields.h"
#include "belay/snapshot/convert.h"
#include "belay/snapshot/hf_config.h"
#include "belay/train/model_source.h"

namespace belay {
namespace {

// Rows of logits that exist at once: as many as 128 MB hold, in multiples of 64.
std::int64_t default_head_block_rows(std::int64_t vocab, std::int64_t tokens) {
  constexpr std::int64_t kBytes = 128'000'000;
  const std::int64_t rows = kBytes / (4 * vocab) / 64 * 64;
  return std::clamp<std::int64_t>(rows, 64, std::max<std::int64_t>(64, tokens));
}

data::Dataset open_data(const std::string& key, const std::string& path, std::int64_t seq_len) {
  if (path.empty()) {
    fail(ExitCode::usage, "data.{} is not set; name a directory that `belay pack` wrote", key);
  }
  return data::Dataset::open(path, seq_len);
}

// Beside model.path only dropout and seq_len may be chosen: what else [model] says must be true.
void refuse_contradictions(const ModelConfig& asked, const ModelConfig& found,
                           const std::string& path) {
  const ModelConfig defaults = family_defaults(asked.family);
  for (const config::Field& field : model_fields()) {
    if (field.name == "dropout" || field.name == "seq_len") continue;
    const config::Value value = field.read(&asked, field);
    const config::Value truth = field.read(&found, field);
    const bool given = field.name == "family" ? asked.family != ModelConfig().family
                                              : value != field.read(&defaults, field);
    if (!given || value == truth) continue;
    fail(ExitCode::usage,
         "model.{} is {} but {} has {}; drop the key (beside model.path only dropout and seq_len "
         "can be chosen)",
         field.name, config::to_text(value), path, config::to_text(truth));
  }
}

// The model as [model] or model.path describes it; vocab and seq_len may still be open.
ModelConfig describe_model(const RunConfig& config) {
  if (config.model_path.empty()) {
    const RopeConfig& rope = config.model.rope;
    if (rope.scaling == RopeScaling::dynamic && rope.original_seq_len == 0) {
      fail(
          ExitCode::usage,
          "model.rope_scaling = \"dynamic\" stretches beyond model.rope_original_seq_len, which is "
          "not set; set it to the length before stretching");
    }
    return config.model;
  }
  ModelConfig model = read_model_config(resolve_snapshot(config.model_path));
  model.dropout = config.model.dropout;
  // What the checkpoint's rotary scaling counts from stays when the rows get longer or shorter.
  if (model.rope.original_seq_len == 0) model.rope.original_seq_len = model.seq_len;
  refuse_contradictions(config.model, model, config.model_path);
  if (config.model.seq_len > 0) {
    if (model.learned_positions() && config.model.seq_len != model.seq_len) {
      if (config.model.seq_len > model.seq_len) {
        fail(ExitCode::usage,
             "model.seq_len {} is longer than the position table of {} ({} rows); use at most {}",
             config.model.seq_len, config.model_path, model.seq_len, model.seq_len);
      }
      return model;  // shorter rows use the front of the table
    }
    model.seq_len = config.model.seq_len;
  }
  return model;
}

}  // namespace

RunSetup set_up_run(RunConfig config) {
  if (config.machine.threads > 0) set_thread_count(static_cast<int>(config.machine.threads));
  ModelConfig model = describe_model(config);
  if (model.seq_len <= 0) {
    fail(ExitCode::usage, "model.seq_len is not set; give the row length, for example 256");
  }
  const std::int64_t rows_of = config.model.seq_len > 0 ? config.model.seq_len : model.seq_len;
  data::Dataset train = open_data("train", config.data.train, rows_of);
  std::optional<data::Dataset> val;
  if (!config.data.val.empty()) val = open_data("val", config.data.val, rows_of);

  if (model.vocab == 0) model.vocab = train.vocab_size();
  if (model.vocab == 0) {
    fail(ExitCode::usage,
         "model.vocab is not set and {} does not carry a tokenizer; set model.vocab to the "
         "tokenizer's size",
         config.data.train);
  }
  finish_config(model);
  require_hf_config(model);
  train.check_ids(static_cast<std::int32_t>(model.vocab));
  if (val) val->check_ids(static_cast<std::int32_t>(model.vocab));
  if (train.counted() == 0) {
    fail(ExitCode::data, "{}: no token has a successor in its document: nothing to learn from",
         config.data.train);
  }
  if (val && val->counted() == 0) {
    fail(ExitCode::data, "{}: no token has a successor in its document: nothing to evaluate",
         config.data.val);
  }
  config.model = model;
  if (config.train.head_block_rows == 0) {
    config.train.head_block_rows =
        default_head_block_rows(model.vocab, config.train.micro_batch * rows_of);
  }

  std::unique_ptr<Device> device = make_device(config.train.device);
  device->set_overflow(config.arithmetic.overflow);
  ParameterTable table = make_parameter_table(model);
  return {std::move(config), rows_of,          std::move(train),
          std::move(val),    std::move(table), std::move(device)};
}

RunSetup set_up_run(RunConfig config, const RankGroup& ranks) {
  std::optional<RunSetup> setup;
  ranks.together([&] { setup.emplace(set_up_run(std::move(config))); });
  const auto compare = [&](const char* key, const data::Dataset& data) {
    const std::string own =
        fmt::format("{} samples with {} counted tokens", data.samples(), data.counted());
    const std::string first = ranks.share(own);
    ranks.together([&] {
      if (own == first) return;
      fail(ExitCode::data, "data.{} has {} here and {} on the first rank: ranks must read the same",
           key, own, first);
    });
  };
  compare("train", setup->train);
  if (setup->val) compare("val", *setup->val);
  return std::move(*setup);
}

RunConfig effective_config(const RunSetup& setup) {
  RunConfig config = setup.config;
  config.model.seq_len = setup.seq_len;
  return config;
}

ProgramConfig program_config(const RunSetup& setup) {
  const RunConfig& config = setup.config;
  ProgramConfig program;
  program.model = in_precision(config.model, config.train.dtype, config.arithmetic);
  program.micro_batch = config.train.micro_batch;
  program.seq_len = setup.seq_len;
  program.compute = config.train.dtype;
  program.head_block_rows = config.train.head_block_rows;
  program.z_loss = config.optimizer.z_loss;
  program.seed = config.train.seed;
  program.protection = config.arithmetic.protection;
  return program;
}

PlanningOptions planning_options(const RunConfig& config) {
  PlanningOptions options;
  options.accumulation = config.train.accumulation;
  options.matmul = config.machine.matmul;
  options.cache = config.machine.cache;
  return options;
}

}  // namespace belay
