#include "belay/data/pack.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string_view>

#include "belay/base/error.h"
#include "belay/base/log.h"
#include "belay/base/parallel.h"
#include "belay/base/philox.h"
#include "belay/data/jsonl.h"
#include "belay/data/ordered_pipeline.h"
#include "belay/data/train_tokenizer.h"

namespace belay::data {
namespace {

constexpr std::string_view kTrain = "train:";
// Matrix units take rows in such steps.
constexpr std::int64_t kRowUnit = 16;

// What a worker makes of a batch.
struct TokenBatch {
  struct Part {
    std::size_t end = 0;  // in ids
    std::size_t cuts_end = 0;
    bool ends_document = true;
  };
  std::vector<std::int32_t> ids;
  std::vector<Cut> cuts;  // count from the begin of their part
  std::vector<Part> parts;
  std::unique_ptr<SentenceCutter> cutter;
  PackCounters counters;
  JsonlParser parser;
};

class Packer {
 public:
  explicit Packer(const PackOptions& options);
  PackReport run();

 private:
  void check_tokens_inputs();
  void check_packing();
  void transform(const InputBatch& batch, TokenBatch& result) const;
  void encode(std::string_view text, bool ends_document, TokenBatch& result) const;
  void end_part(bool ends_document, TokenBatch& result) const;
  bool parse_line(const InputBatch& batch, const InputPart& part, TokenBatch& result,
                  std::string_view& text) const;
  void consume(TokenBatch& batch);
  StoreWriter& writer_of_document();
  [[noreturn]] void refuse_nothing() const;
  [[nodiscard]] PackedStore summary(const StoreWriter& writer, const std::string& path) const;

  const PackOptions& options_;
  PackCounters counters_;
  std::vector<InputFile> files_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::optional<TokenTexts> texts_;  // when sentences are looked for
  std::int64_t vocab_size_ = 0;
  std::int32_t eod_ = -1;
  std::int32_t last_id_ = -1;  // of the open document
  std::optional<InputReader> reader_;
  std::optional<StoreWriter> train_;
  std::optional<StoreWriter> val_;
  StoreWriter* writer_ = nullptr;  // of the open document
  std::int64_t documents_ = 0;     // that had tokens
  bool document_open_ = false;
};

Packer::Packer(const PackOptions& options) : options_(options) {
  files_ = collect_inputs(options.inputs, options.input_kind ? &*options.input_kind : nullptr,
                          counters_);
  if (files_.empty()) fail(ExitCode::usage, "no input given");
  std::string spec = options.tokenizer;
  std::int64_t max_id = 0;
  bool text = false;
  for (const InputFile& file : files_) {
    if (file.kind != InputKind::tokens) {
      text = true;
      continue;
    }
    const Dataset dataset = Dataset::open_documents(file.path);
    max_id = std::max<std::int64_t>(max_id, dataset.max_id());
    vocab_size_ = std::max<std::int64_t>(vocab_size_, dataset.vocab_size());
    if (spec.empty()) spec = dataset.tokenizer();
  }
  if (spec.empty() && text) fail(ExitCode::usage, "text needs a tokenizer; say --tokenizer");
  if (spec.starts_with(kTrain)) {
    const std::string_view size = std::string_view(spec).substr(kTrain.size());
    std::int32_t vocab = 0;
    const auto [end, error] = std::from_chars(size.data(), size.data() + size.size(), vocab);
    if (error != std::errc() || end != size.data() + size.size() || !text) {
      fail(ExitCode::usage, "--tokenizer {}: expected train:VOCAB and text to train on", spec);
    }
    tokenizer_ = train_tokenizer(vocab, files_, options.input, options.text_key);
  } else if (!spec.empty()) {
    tokenizer_ = load_tokenizer(spec);
  }
  if (tokenizer_) {
    vocab_size_ = tokenizer_->vocab_size();
    if (max_id >= vocab_size_) check_tokens_inputs();
  }
  if (options.append_eod) {
    const auto id = tokenizer_ ? tokenizer_->end_of_document() : std::nullopt;
    if (!id) {
      fail(ExitCode::usage, "--append-eod: {} has no end-of-document id",
           tokenizer_ ? "the tokenizer " + spec : "an input without a tokenizer");
    }
    eod_ = *id;
  }

  StoreWriterOptions writer{.out = options.out,
                            .format = options.format,
                            .type = TokenType::u16,
                            .row_len = options.row_len,
                            .packing = options.packing,
                            .overwrite = options.overwrite};
  writer.type = options.type.value_or(
      type_for_vocab(vocab_size_ > 0 ? vocab_size_ : max_id + 1, options.format));
  check_packing();
  if (!options.val_out.empty() && std::filesystem::weakly_canonical(options.val_out) ==
                                      std::filesystem::weakly_canonical(options.out)) {
    fail(ExitCode::usage, "--out and --val-out are both {}; give them different names",
         options.out);
  }
  train_.emplace(writer);
  writer_ = &*train_;
  if (!options.val_out.empty()) {
    writer.out = options.val_out;
    val_.emplace(writer);
  }
  reader_.emplace(files_, options.input);
}

void Packer::check_packing() {
  if (options_.row_len == 0) return;
  if (options_.format == StoreFormat::megatron) {
    fail(ExitCode::usage, "--seq-len packs rows, which a Megatron file cannot hold");
  }
  if (options_.packing != Packing::sentences) return;
  if (const std::int64_t over = options_.row_len % kRowUnit; over != 0) {
    const std::int64_t below = options_.row_len - over;
    fail(ExitCode::usage,
         "--seq-len {}: rows of sentences are a multiple of {} tokens long; say {}{}, or "
         "--packing documents",
         options_.row_len, kRowUnit, below > 0 ? fmt::format("{} or ", below) : "",
         below + kRowUnit);
  }
  if (!tokenizer_) {
    fail(ExitCode::usage,
         "--packing sentences needs the tokenizer of the ids to read them; say --tokenizer, or "
         "--packing documents");
  }
  texts_.emplace(*tokenizer_);
}

void Packer::check_tokens_inputs() {
  for (const InputFile& file : files_) {
    if (file.kind != InputKind::tokens) continue;
    Dataset::open_documents(file.path).check_ids(static_cast<std::int32_t>(vocab_size_));
  }
}

void Packer::transform(const InputBatch& batch, TokenBatch& result) const {
  result.ids.clear();
  result.cuts.clear();
  result.parts.clear();
  result.counters = {};
  for (const InputPart& part : batch.parts) {
    if (part.kind == InputKind::tokens) {
      const auto* begin = batch.ids.data() + part.begin;
      result.ids.insert(result.ids.end(), begin, begin + part.size);
      end_part(part.ends_document, result);
      continue;
    }
    std::string_view text = std::string_view(batch.text).substr(part.begin, part.size);
    if (part.kind == InputKind::jsonl && !parse_line(batch, part, result, text)) continue;
    const auto limit = static_cast<std::size_t>(options_.input.max_document_bytes);
    while (text.size() > limit) {
      const std::size_t cut = cut_point(text, limit);
      encode(text.substr(0, cut), false, result);
      text.remove_prefix(cut);
      ++result.counters.documents_cut;
    }
    encode(text, part.ends_document, result);
  }
}

bool Packer::parse_line(const InputBatch& batch, const InputPart& part, TokenBatch& result,
                        std::string_view& text) const {
  const std::string_view line = std::string_view(batch.text).substr(part.begin, part.size);
  JsonlError error;
  if (result.parser.parse(line, options_.text_key, text, error)) return true;
  if (options_.skip_bad) {
    ++result.counters.lines_bad;
    return false;
  }
  std::string where;
  if (error.offset >= 0 && error.offset < std::ssize(line)) {
    const auto byte = static_cast<unsigned char>(line[static_cast<std::size_t>(error.offset)]);
    where = fmt::format(" at byte {} of the line ({} of the file), which is 0x{:02X}", error.offset,
                        part.offset + error.offset, byte);
  }
  fail(ExitCode::data, "{}: line {} {}{}; --skip-bad drops such lines", reader_->path(part.file),
       part.line, error.what, where);
}

void Packer::encode(std::string_view text, bool ends_document, TokenBatch& result) const {
  if (!text.empty()) {
    result.counters.text_bytes += std::ssize(text);
    result.counters.special_text_seen += tokenizer_->count_special_text(text);
    if (find_invalid_utf8(text) != std::string_view::npos) {
      ++result.counters.documents_invalid_utf8;
    }
    tokenizer_->encode(text, result.ids,
                       options_.map_special ? SpecialText::map : SpecialText::ordinary);
  }
  end_part(ends_document, result);
}

void Packer::end_part(bool ends_document, TokenBatch& result) const {
  if (texts_) {
    const std::size_t begin = result.parts.empty() ? 0 : result.parts.back().end;
    const std::size_t cuts_begin = result.cuts.size();
    const auto ids = std::span<const std::int32_t>(result.ids).subspan(begin);
    if (!result.cutter) result.cutter = std::make_unique<SentenceCutter>();
    result.cutter->find(*texts_, ids, result.cuts);
    // Nothing is cut off behind a document but the mark of its end.
    if (ends_document && result.cuts.size() > cuts_begin && result.cuts.back().at == ids.size()) {
      result.cuts.pop_back();
    }
  }
  result.parts.push_back({result.ids.size(), result.cuts.size(), ends_document});
}

// Which documents are held out is a function of their number alone. The key sets these draws apart
// from every other use of random numbers.
StoreWriter& Packer::writer_of_document() {
  if (!val_) return *train_;
  const RandomKey key{.seed = 0x76616C, .step = 0, .stream = 0};
  const PhiloxBlock block = random_block(key, static_cast<std::uint64_t>(documents_));
  return static_cast<double>(block[0]) * 0x1p-32 < options_.val_share ? *val_ : *train_;
}

void Packer::consume(TokenBatch& batch) {
  std::size_t begin = 0;
  std::size_t cuts_begin = 0;
  for (const TokenBatch::Part& part : batch.parts) {
    const auto ids = std::span<const std::int32_t>(batch.ids).subspan(begin, part.end - begin);
    const auto cuts =
        std::span<const Cut>(batch.cuts).subspan(cuts_begin, part.cuts_end - cuts_begin);
    begin = part.end;
    cuts_begin = part.cuts_end;
    if (!document_open_) writer_ = &writer_of_document();
    document_open_ = !part.ends_document;
    writer_->append(ids, cuts);
    if (!ids.empty()) last_id_ = ids.back();
    if (!part.ends_document) continue;
    if (writer_->document_tokens() == 0) {
      ++counters_.documents_empty;
      continue;
    }
    // Documents that come as tokens may have their end already.
    if (eod_ >= 0 && last_id_ != eod_) writer_->append(std::span(&eod_, 1));
    writer_->end_document();
    ++documents_;
  }
  counters_.add(batch.counters);
  if (options_.progress) {
    const std::int64_t tokens = train_->tokens() + (val_ ? val_->tokens() : 0);
    options_.progress({counters_.text_bytes, documents_, tokens});
  }
}

void Packer::refuse_nothing() const {
  if (counters_.lines_too_long > 0) {
    fail(ExitCode::data, "0 documents: {} of {} lines were over {} bytes; raise --max-line-bytes",
         counters_.lines_too_long, counters_.lines, options_.input.max_line_bytes);
  }
  fail(ExitCode::data, "0 documents in {} files: {} empty, {} lines bad, {} blank", counters_.files,
       counters_.documents_empty, counters_.lines_bad, counters_.lines_blank);
}

PackedStore Packer::summary(const StoreWriter& writer, const std::string& path) const {
  PackedStore store;
  store.path = path;
  store.documents = writer.documents();
  store.tokens = writer.tokens();
  const PackingCounter* const figures = writer.figures();
  if (figures == nullptr) return store;
  const auto of = [&](std::int64_t rows, std::int64_t cut_documents) {
    const double places = static_cast<double>(rows) * static_cast<double>(options_.row_len);
    PackingFigures result;
    result.rows = rows;
    result.padding_share = 1.0 - static_cast<double>(writer.tokens()) / places;
    if (texts_) {
      result.cut_share =
          static_cast<double>(cut_documents) / static_cast<double>(writer.documents());
    }
    return result;
  };
  const CutDocuments& cut = figures->cut_documents();
  store.concat = of(figures->concat_rows(), cut.concat);
  store.document_per_row = of(figures->document_per_row_rows(), cut.document_per_row);
  store.pieces = writer.pieces();
  store.packing =
      options_.packing == Packing::concat ? store.concat : of(writer.rows(), cut.sentences);
  return store;
}

PackReport Packer::run() {
  const auto start = std::chrono::steady_clock::now();
  const int workers = options_.threads > 0 ? options_.threads : thread_count();
  run_ordered<InputBatch, TokenBatch>(
      workers, 2 * workers + 2, [&](InputBatch& batch) { return reader_->next(batch); },
      [&](const InputBatch& batch, TokenBatch& result) { transform(batch, result); },
      [&](TokenBatch& batch) { consume(batch); });
  counters_.add(reader_->counters());
  if (documents_ == 0) refuse_nothing();
  if (val_ && (val_->documents() == 0 || train_->documents() == 0)) {
    fail(ExitCode::data,
         "of {} documents {} were held out with --val-share {}; choose another share or split the "
         "documents with --split-on",
         documents_, val_->documents(), options_.val_share);
  }

  StoreMeta meta;
  meta.vocab_size = vocab_size_;
  meta.append_eod = options_.append_eod;
  if (tokenizer_) {
    meta.end_of_document = tokenizer_->end_of_document().value_or(-1);
    const std::int32_t pad =
        tokenizer_->padding().value_or(tokenizer_->end_of_document().value_or(0));
    meta.pad_id = pad;
  }
  for (const auto& [name, field] : PackCounters::fields()) {
    meta.counters.emplace_back(name, counters_.*field);
  }
  train_->finish(meta, tokenizer_.get());
  if (val_) val_->finish(meta, tokenizer_.get());
  train_->publish();
  if (val_) val_->publish();

  PackReport report;
  report.train = summary(*train_, options_.out);
  if (val_) report.val = summary(*val_, options_.val_out);
  report.counters = counters_;
  report.vocab_size = vocab_size_;
  report.type = train_->type();
  report.row_len = options_.row_len;
  report.packing = options_.packing;
  report.tokenizer = tokenizer_ ? tokenizer_->file_name() : "";
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

}  // namespace

PackReport pack(const PackOptions& options) {
  return Packer(options).run();
}

}  // namespace belay::data
