// belay pack

#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "belay/base/error.h"
#include "belay/base/log.h"
#include "belay/cli/commands.h"
#include "belay/cli/options.h"
#include "belay/data/pack.h"

namespace belay {
namespace {

struct Arguments {
  data::PackOptions options;
  std::string format = "belay";
  std::string dtype = "auto";
  std::string input_kind = "auto";
  bool json = false;
};

// A line that is rewritten on a terminal, a line every ten seconds elsewhere.
class ProgressLine {
 public:
  explicit ProgressLine(bool enabled) : enabled_(enabled), terminal_(isatty(STDERR_FILENO) != 0) {}
  ~ProgressLine() {
    if (drawn_ && terminal_) fmt::print(stderr, "\r\033[K");
  }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void update(const data::PackProgress& now) {
    const auto time = Clock::now();
    const auto pause = terminal_ ? std::chrono::milliseconds(200) : std::chrono::seconds(10);
    if (!enabled_ || time - last_ < pause) return;
    last_ = time;
    const double seconds = std::chrono::duration<double>(time - start_).count();
    const double megabytes = static_cast<double>(now.text_bytes) / 1e6;
    const std::string line = fmt::format("{:.1f} MB of text, {} documents, {} tokens, {:.1f} MB/s",
                                         megabytes, now.documents, now.tokens, megabytes / seconds);
    if (terminal_) {
      fmt::print(stderr, "\r\033[K{}", line);
      std::fflush(stderr);
    } else {
      log::info("{}", line);
    }
    drawn_ = true;
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now();
  Clock::time_point last_ = Clock::now();
  bool enabled_;
  bool terminal_;
  bool drawn_ = false;
};

nlohmann::ordered_json to_json(const data::PackedStore& store) {
  return {{"path", store.path},
          {"documents", store.documents},
          {"tokens", store.tokens},
          {"rows", store.rows},
          {"padding_share", store.padding_share}};
}

void print_json(const data::PackReport& report) {
  nlohmann::ordered_json json = to_json(report.train);
  if (report.val) json["val"] = to_json(*report.val);
  json["vocab_size"] = report.vocab_size;
  json["dtype"] = name_of(report.type);
  json["bytes_per_token"] = report.bytes_per_token();
  json["seconds"] = report.seconds;
  for (const auto& [name, field] : data::PackCounters::fields()) {
    json["counters"][name] = report.counters.*field;
  }
  fmt::print("{}\n", json.dump());
}

void print_store(const data::PackedStore& store) {
  fmt::print("{}: {} documents, {} tokens", store.path, store.documents, store.tokens);
  if (store.rows > 0) {
    fmt::print(", {} rows, {:.2f}% padding", store.rows, 100.0 * store.padding_share);
  }
  fmt::print("\n");
}

void print_report(const data::PackReport& report) {
  print_store(report.train);
  if (report.val) print_store(*report.val);
  const double megabytes = static_cast<double>(report.counters.text_bytes) / 1e6;
  fmt::print("ids {} (vocabulary {}), ", name_of(report.type), report.vocab_size);
  if (report.counters.text_bytes > 0)
    fmt::print("{:.3f} bytes a token, ", report.bytes_per_token());
  fmt::print("{:.1f} MB in {:.1f} s\n", megabytes, report.seconds);
  for (const auto& [name, field] : data::PackCounters::fields()) {
    if (report.counters.*field != 0) fmt::print("{}={} ", name, report.counters.*field);
  }
  fmt::print("\n");
}

void run(Arguments& arguments) {
  data::PackOptions& options = arguments.options;
  if (arguments.format == "megatron") options.format = data::StoreFormat::megatron;
  if (arguments.input_kind == "text") options.input_kind = data::InputKind::text;
  if (arguments.input_kind == "jsonl") options.input_kind = data::InputKind::jsonl;
  if (arguments.dtype != "auto") {
    const bool megatron = options.format == data::StoreFormat::megatron;
    const data::TokenType wide = megatron ? data::TokenType::i32 : data::TokenType::u32;
    options.type = arguments.dtype == "u16" ? data::TokenType::u16 : wide;
  }
  data::PackReport report;
  {
    ProgressLine progress(!arguments.json);
    options.progress = [&](const data::PackProgress& now) { progress.update(now); };
    report = data::pack(options);
  }
  const data::PackCounters& counters = report.counters;
  if (counters.lines_bad > 0 || counters.lines_too_long > 0) {
    log::warn("dropped {} bad and {} too long of {} lines", counters.lines_bad,
              counters.lines_too_long, counters.lines);
  }
  if (counters.special_text_seen > 0 && !options.map_special) {
    log::warn("text of special tokens was met {} times and encoded as ordinary text",
              counters.special_text_seen);
  }
  arguments.json ? print_json(report) : print_report(report);
}

}  // namespace

void add_pack(CLI::App& app) {
  CLI::App* command = app.add_subcommand("pack", "Turn text into a token store for training");
  auto arguments = std::make_shared<Arguments>();
  data::PackOptions& options = arguments->options;
  command
      ->add_option("inputs", options.inputs,
                   ".txt and .jsonl files (also .gz, .zst), directories of them, or token files")
      ->required();
  command->add_option("--out", options.out, "Directory to write; for Megatron the prefix")
      ->required();
  command->add_option(
      "--tokenizer", options.tokenizer,
      "bytes, a tokenizer.json, a sentencepiece .model, a directory, or train:VOCAB");
  command->add_option("--format", arguments->format, "Of the output")
      ->check(CLI::IsMember({"belay", "megatron"}))
      ->capture_default_str();
  command
      ->add_option("--seq-len", options.row_len,
                   "Also pack rows of this length, short documents whole")
      ->check(above_zero());
  command->add_flag("--append-eod", options.append_eod,
                    "End each document with the tokenizer's id");
  command->add_option("--text-key", options.text_key, "Where the text stands in a JSONL line")
      ->capture_default_str();
  command->add_option("--split-on", options.input.split_on,
                      "In text files a line equal to this ends a document");
  command->add_option("--input", arguments->input_kind, "What files of other names are")
      ->check(CLI::IsMember({"auto", "text", "jsonl"}))
      ->capture_default_str();
  CLI::Option* const val_out =
      command->add_option("--val-out", options.val_out, "Hold out documents into this directory");
  command->add_option("--val-share", options.val_share, "Share of the documents held out")
      ->needs(val_out)
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  command->add_flag("--skip-bad", options.skip_bad,
                    "Drop and count JSONL lines that are not right");
  command->add_flag("--map-special", options.map_special,
                    "Text that reads like a special token becomes that token");
  command
      ->add_option("--max-line-bytes", options.input.max_line_bytes,
                   "Longer JSONL lines are dropped and counted")
      ->check(above_zero())
      ->capture_default_str();
  command
      ->add_option("--max-document-bytes", options.input.max_document_bytes,
                   "Longer documents are tokenised in parts")
      ->check(above_zero())
      ->capture_default_str();
  command->add_option("--dtype", arguments->dtype, "Width of ids; auto: by the vocabulary")
      ->check(CLI::IsMember({"auto", "u16", "u32"}))
      ->capture_default_str();
  command->add_option("--threads", options.threads, "Tokenising threads; 0: all cores")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  command->add_flag("--overwrite", options.overwrite, "Replace what stands under --out");
  command->add_flag("--json", arguments->json, "Print the result as JSON");
  command->footer(
      "Example:\n"
      "  belay pack --tokenizer train:8192 --append-eod --out data/train --val-out data/val "
      "books/");
  command->callback([arguments] { run(*arguments); });
}

}  // namespace belay
