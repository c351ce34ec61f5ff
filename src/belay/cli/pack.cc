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
  std::string packing{name_of(data::Packing::sentences)};
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

// The ways of packing a store's documents, the one that was chosen first.
std::vector<std::pair<std::string, data::PackingFigures>> packings(const data::PackReport& report,
                                                                   const data::PackedStore& store) {
  std::vector<std::pair<std::string, data::PackingFigures>> all;
  if (!store.packing) return all;
  if (report.packing != data::Packing::concat) {
    all.emplace_back(name_of(report.packing), *store.packing);
  }
  all.emplace_back(name_of(data::Packing::concat), store.concat);
  all.emplace_back("document_per_row", store.document_per_row);
  return all;
}

nlohmann::ordered_json to_json(const data::PackReport& report, const data::PackedStore& store) {
  nlohmann::ordered_json json = {
      {"path", store.path}, {"documents", store.documents}, {"tokens", store.tokens}};
  if (!store.packing) return json;
  json["row_len"] = report.row_len;
  json["packing"] = name_of(report.packing);
  json["rows"] = store.packing->rows;
  json["pieces"] = store.pieces;
  json["padding_share"] = store.packing->padding_share;
  for (const auto& [name, figures] : packings(report, store)) {
    nlohmann::ordered_json& entry = json["packings"][name];
    entry = {{"rows", figures.rows}, {"padding_share", figures.padding_share}};
    if (figures.cut_share) entry["cut_sentence_share"] = *figures.cut_share;
  }
  return json;
}

void print_json(const data::PackReport& report) {
  nlohmann::ordered_json json = to_json(report, report.train);
  if (report.val) json["val"] = to_json(report, *report.val);
  json["vocab_size"] = report.vocab_size;
  json["dtype"] = name_of(report.type);
  json["bytes_per_token"] = report.bytes_per_token();
  json["seconds"] = report.seconds;
  for (const auto& [name, field] : data::PackCounters::fields()) {
    json["counters"][name] = report.counters.*field;
  }
  fmt::print("{}\n", json.dump());
}

void print_store(const data::PackReport& report, const data::PackedStore& store) {
  fmt::print("{}: {} documents, {} tokens\n", store.path, store.documents, store.tokens);
  if (!store.packing) return;
  fmt::print("  {:<18}{:>10}{:>10}  {}\n", "packing", "rows", "padding",
             "documents cut inside a sentence");
  for (const auto& [name, figures] : packings(report, store)) {
    fmt::print(
        "  {:<18}{:>10}{:>9.2f}%  {}\n", name, figures.rows, 100.0 * figures.padding_share,
        figures.cut_share ? fmt::format("{:.2f}%", 100.0 * *figures.cut_share) : "not looked for");
  }
}

void print_report(const data::PackReport& report) {
  print_store(report, report.train);
  if (report.val) print_store(report, *report.val);
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
  for (const auto packing : {data::Packing::concat, data::Packing::documents}) {
    if (arguments.packing == name_of(packing)) options.packing = packing;
  }
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
  CLI::Option* const seq_len =
      command
          ->add_option("--seq-len", options.row_len, "Also pack rows of this length, see --packing")
          ->check(above_zero());
  command
      ->add_option("--packing", arguments->packing,
                   "How rows are made. sentences: documents cut between sentences, rows full; "
                   "documents: cut anywhere, if longer than a row; concat: no rows of their own, "
                   "training cuts the stream of documents")
      ->needs(seq_len)
      ->check(CLI::IsMember({"sentences", "documents", "concat"}))
      ->capture_default_str();
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
      "  belay pack --tokenizer train:8192 --append-eod --seq-len 256 --out data/train \\\n"
      "      --val-out data/val books/");
  command->callback([arguments] { run(*arguments); });
}

}  // namespace belay
