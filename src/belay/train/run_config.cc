#include "belay/train/run_config.h"

#include "belay/base/error.h"
#include "belay/base/file.h"
#include "belay/comm/fault_script.h"
#include "belay/model/model_fields.h"

namespace belay {
namespace {

std::span<const config::Field> path_fields() {
  static const config::Field kFields[] = {config::field<&RunConfig::model_path>(
      "path", "Hugging Face directory to take the model and its weights from; empty: new weights")};
  return kFields;
}

void check_together(const RunConfig& config) {
  if (config.train.eval_every > 0 && config.data.val.empty()) {
    fail(ExitCode::usage,
         "train.eval_every = {} needs held-out data: set data.val, or eval_every = 0",
         config.train.eval_every);
  }
}

void check_pipeline(const comm::CommConfig& config) {
  if (config.pipeline_depth == 0) return;
  if (!config.overlap) {
    fail(ExitCode::usage,
         "comm.pipeline_depth = {} sums gradients while the next micro-batch computes, which "
         "comm.overlap = false rules out; set one or the other",
         config.pipeline_depth);
  }
  if (config.compression != comm::Compression::none) {
    fail(ExitCode::usage,
         "comm.compression owes each parameter once per step, comm.pipeline_depth = {} sends it "
         "once per micro-batch; set one or the other",
         config.pipeline_depth);
  }
  if (config.order_stable) {
    fail(ExitCode::usage,
         "comm.order_stable = true sums every micro-batch before the next one begins; set "
         "comm.pipeline_depth = 0 with it");
  }
}

void read_into(RunConfig& config, std::string_view text, std::string_view source,
               const std::vector<std::string>& overrides) {
  const auto sections = sections_of(config);
  config::read_text(text, source, sections);
  for (const std::string& assignment : overrides) config::apply_override(assignment, sections);
}

}  // namespace

void check_sharing(const RunConfig& config, int ranks) {
  if (ranks == 1) return;
  const std::int64_t zero = config.parallel.zero;
  // Micro-batches that a rank has in a step, at most.
  const std::int64_t micro_batches = config.train.global_batch / config.train.micro_batch;
  const std::int64_t rounds = (micro_batches + ranks - 1) / ranks;
  if (zero == 1 && config.comm.pipeline_depth > 0) {
    fail(ExitCode::usage,
         "comm.pipeline_depth = {} sends the gradients of every micro-batch, parallel.zero = 1 "
         "keeps them and sends their sum; set comm.pipeline_depth = 0, or parallel.zero = 2, which "
         "sends those of a micro-batch while the next one computes",
         config.comm.pipeline_depth);
  }
  if (zero >= 2 && config.comm.compression != comm::Compression::none && rounds > 1) {
    fail(ExitCode::usage,
         "comm.compression owes each parameter once per step, parallel.zero = {} sends it for each "
         "of the {} micro-batches that a rank has in a step; set parallel.zero = 1, or a larger "
         "train.micro_batch",
         zero, rounds);
  }
}

std::vector<config::Section> sections_of(RunConfig& config) {
  return {
      {"model", model_fields(), &config.model},
      {"model", path_fields(), &config},
      config::section(config.data),
      config::section(config.train),
      config::section(config.optimizer),
      config::section(config.arithmetic),
      config::section(config.precision),
      config::section(config.parallel),
      config::section(config.comm),
      config::section(config.snapshot),
      config::section(config.observe),
      config::section(config.machine),
  };
}

RunConfig parse_config(std::string_view text, std::string_view source,
                       const std::vector<std::string>& overrides, int ranks) {
  // The family decides what the other keys default to, so it is read first.
  RunConfig first;
  read_into(first, text, source, overrides);
  RunConfig config;
  config.model = family_defaults(first.model.family);
  read_into(config, text, source, overrides);
  check_parallel(config.parallel);
  comm::check_comm(config.comm);
  // These throw if they are not understood.
  static_cast<void>(forced_choices(config.comm));
  static_cast<void>(comm::FaultScript(config.comm.inject, ranks));
  if (config.comm.order_stable && ranks > 1 && config.train.micro_batch == 0) {
    fail(ExitCode::usage,
         "comm.order_stable = true needs train.micro_batch: what is derived from global_batch "
         "depends on the number of ranks, and losses with it");
  }
  check_pipeline(config.comm);
  resolve_batch(config.train, ranks);
  check_sharing(config, ranks);
  check_schedule(config.optimizer.schedule_of(config.train.steps));
  check_clipping(config.optimizer);
  check_precision(config.precision);
  check_together(config);
  return config;
}

RunConfig load_config(const std::string& path, const std::vector<std::string>& overrides,
                      int ranks) {
  constexpr std::int64_t kLargest = std::int64_t{1} << 20;
  return parse_config(read_file(path, kLargest), path, overrides, ranks);
}

std::string to_toml(RunConfig config) {
  return config::to_toml(sections_of(config));
}

}  // namespace belay
