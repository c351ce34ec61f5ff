// belay snapshot inspect | verify | export | import

#include "belay/snapshot/snapshot.h"

#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "belay/base/error.h"
#include "belay/cli/commands.h"
#include "belay/snapshot/convert.h"
#include "belay/snapshot/inspect.h"
#include "belay/snapshot/verify.h"

namespace belay {
namespace {

struct Arguments {
  std::string source;
  std::string out;
  std::string dtype = "f32";
  std::string max_shard_size = "5GB";
  bool norms = false;
  bool allow_unknown = false;
  bool json = false;
};

void run_inspect(const Arguments& arguments) {
  const Inspection inspection = inspect(arguments.source, arguments.norms);
  const std::string text =
      arguments.json ? inspection_json(inspection) : inspection_text(inspection);
  std::fputs(text.c_str(), stdout);
}

void run_verify(const Arguments& arguments) {
  const std::vector<Verified> results = verify(arguments.source);
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  std::size_t bad = 0;
  for (const Verified& result : results) {
    bad += result.problems.empty() ? 0 : 1;
    json.push_back({{"path", result.path},
                    {"ok", result.problems.empty()},
                    {"hashed", result.hashed},
                    {"problems", result.problems}});
    if (arguments.json) continue;
    if (result.problems.empty()) {
      fmt::print("{}: good{}\n", result.path,
                 result.hashed ? "" : " (structure only: there is no manifest with hashes)");
    } else {
      fmt::print("{}: BAD: {}\n", result.path, fmt::join(result.problems, "; "));
    }
  }
  if (arguments.json) {
    fmt::print("{}\n", json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  }
  if (bad > 0) {
    fail(ExitCode::data, "{}: {} of {} did not pass", arguments.source, bad, results.size());
  }
}

void report(const Converted& result, bool json) {
  if (json) {
    const nlohmann::ordered_json object = {{"directory", result.directory},
                                           {"parameters", result.parameters},
                                           {"bytes", result.bytes},
                                           {"files", result.files}};
    fmt::print("{}\n", object.dump(2));
  } else {
    fmt::print("{}: {} parameters, {} bytes of weights in {} file{}\n", result.directory,
               result.parameters, result.bytes, result.files, result.files == 1 ? "" : "s");
  }
}

void run_export(const Arguments& arguments) {
  const std::optional<DType> dtype = parse_dtype(arguments.dtype);
  if (!dtype || (*dtype != DType::f32 && *dtype != DType::bf16 && *dtype != DType::f16)) {
    fail(ExitCode::usage, "--dtype {}: weights are written as f32, bf16 or f16", arguments.dtype);
  }
  report(
      export_model(arguments.source, arguments.out, *dtype, parse_size(arguments.max_shard_size)),
      arguments.json);
}

void run_import(const Arguments& arguments) {
  report(import_model(arguments.source, arguments.out, {arguments.allow_unknown}), arguments.json);
}

}  // namespace

void add_snapshot(CLI::App& app) {
  CLI::App* group = app.add_subcommand(
      "snapshot", "Look into snapshots, verify them, and convert them to and from other formats");
  group->require_subcommand(1);
  group->footer(
      "Examples:\n"
      "  belay snapshot inspect runs/first\n"
      "  belay snapshot export runs/first --out models/first");
  const auto arguments = std::make_shared<Arguments>();
  const auto add = [&](const char* name, const char* what, const char* source, const char* example,
                       void (*body)(const Arguments&)) {
    CLI::App* command = group->add_subcommand(name, what);
    command->add_option("source", arguments->source, source)->required();
    command->add_flag("--json", arguments->json, "Print JSON");
    command->footer(std::string("Example:\n  ") + example);
    command->callback([arguments, body] { body(*arguments); });
    return command;
  };

  CLI::App* look =
      add("inspect", "Show the model, the training state and every tensor",
          "Snapshot, run, Hugging Face directory, .safetensors or llm.c file",
          "belay snapshot inspect runs/first/snapshots/step-00000200 --norms", run_inspect);
  look->add_flag("--norms", arguments->norms, "Also read the data: norm and largest value of each");

  add("verify", "Check that everything is there and unchanged (exit code 3 when not)",
      "Snapshot, run (all its snapshots), Hugging Face directory or file",
      "belay snapshot verify runs/first", run_verify);

  CLI::App* out =
      add("export", "Write a Hugging Face directory that transformers loads",
          "Snapshot, run (its newest snapshot) or Hugging Face directory",
          "belay snapshot export runs/first --out models/first --dtype bf16", run_export);
  out->add_option("--out", arguments->out, "Directory to create")->required();
  out->add_option("--dtype", arguments->dtype, "f32, bf16 or f16")->capture_default_str();
  out->add_option("--max-shard-size", arguments->max_shard_size, "Split above this: 500MB, 5GB")
      ->capture_default_str();

  CLI::App* in = add("import",
                     "Read a Hugging Face directory or an llm.c GPT-2 checkpoint into a directory "
                     "for model.path",
                     "Hugging Face directory or llm.c model_*.bin",
                     "belay snapshot import model_00018882.bin --out models/gpt2", run_import);
  in->add_option("--out", arguments->out, "Directory to create")->required();
  in->add_flag("--allow-unknown", arguments->allow_unknown,
               "Pass over tensors that the model has no place for");
}

}  // namespace belay
