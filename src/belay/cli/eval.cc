// belay eval

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "belay/base/error.h"
#include "belay/cli/commands.h"
#include "belay/cli/options.h"
#include "belay/precision/arithmetic_config.h"
#include "belay/snapshot/convert.h"
#include "belay/train/evaluate.h"
#include "belay/train/loaded_model.h"
#include "belay/train/model_source.h"
#include "belay/train/planning.h"

namespace belay {
namespace {

struct Arguments {
  std::string model;
  std::string data;
  std::string dtype = "f32";
  std::string device = "cpu";
  std::int64_t batch = 8;
  std::int64_t seq_len = 0;
  std::int64_t batches = 0;
  bool isolate = true;
  bool json = false;
};

void run(const Arguments& a) {
  const DType compute = parse_compute_dtype(a.dtype);
  const std::string dir = resolve_snapshot(a.model);
  ProgramConfig config;
  config.model = in_precision(read_model_config(dir), compute);
  config.micro_batch = a.batch;
  config.seq_len = a.seq_len > 0 ? a.seq_len : config.model.seq_len;
  config.compute = compute;
  config.head_block_rows = 256;
  config.train = false;
  if (config.seq_len > config.model.seq_len) {
    fail(ExitCode::usage, "--seq-len {} is longer than the model's {}", config.seq_len,
         config.model.seq_len);
  }
  data::Dataset dataset = data::Dataset::open(a.data, config.seq_len);
  dataset.check_ids(static_cast<std::int32_t>(config.model.vocab));

  const ParameterTable table = make_parameter_table(config.model);
  const auto device = make_device(a.device);
  PlanningOptions planning;
  planning.calibrate = false;
  const Prepared prepared = prepare_program(*device, table, config, planning);
  load_weights(prepared.program->lane(), dir, prepared.program->parameters());
  const EvaluationResult result = evaluate(*prepared.program, dataset, {a.batches, a.isolate});
  if (result.tokens == 0) fail(ExitCode::data, "{}: no token counts in the loss", a.data);

  const double perplexity = std::exp(result.loss);
  const double rate = static_cast<double>(result.tokens) / result.ms * 1e3;
  if (a.json) {
    const nlohmann::ordered_json object = {{"model", dir},
                                           {"data", a.data},
                                           {"loss", result.loss},
                                           {"perplexity", perplexity},
                                           {"tokens", result.tokens},
                                           {"tokens_per_s", rate}};
    fmt::print("{}\n", object.dump());
  } else {
    fmt::print("loss {:.6f} nats, perplexity {:.3f}, over {} tokens ({:.0f} tokens/s)\n",
               result.loss, perplexity, result.tokens, rate);
  }
}

}  // namespace

void add_eval(CLI::App& app) {
  CLI::App* command = app.add_subcommand("eval", "Measure a model's loss on packed data");
  auto a = std::make_shared<Arguments>();
  command->add_option("model", a->model, "Run directory, snapshot or Hugging Face directory")
      ->required();
  command->add_option("--data", a->data, "Directory that `belay pack` wrote, or another token file")
      ->required();
  command->add_option("--batch", a->batch, "Rows at a time; does not change the result")
      ->check(above_zero())
      ->capture_default_str();
  command->add_option("--seq-len", a->seq_len, "Tokens per row; 0: the model's")
      ->check(at_least_zero());
  command->add_option("--batches", a->batches, "Only the first N batches; 0: all")
      ->check(at_least_zero());
  command->add_option("--dtype", a->dtype, "f32, bf16 or f16")->capture_default_str();
  command->add_option("--device", a->device, "cpu or reference")->capture_default_str();
  command->add_flag("--isolate,!--no-isolate", a->isolate,
                    "Documents in one row do not see each other (default)");
  command->add_flag("--json", a->json, "Print JSON");
  command->footer("Example:\n  belay eval runs/a --data data/val --json");
  command->callback([a] { run(*a); });
}

}  // namespace belay
