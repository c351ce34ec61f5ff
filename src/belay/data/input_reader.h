#pragma once
// InputReader: the files given to `belay pack` as batches of documents, a quarter of a megabyte
// each, in the order of the files. One thread reads; what is costly (JSON, tokenising) is left to
// others.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "belay/data/byte_reader.h"
#include "belay/data/dataset.h"
#include "belay/data/pack_counters.h"

namespace belay::data {

enum class InputKind : std::uint8_t {
  text,    // one document per file, or several split by a line
  jsonl,   // one document per line
  tokens,  // a token store, Megatron pair or llm.c files
};

struct InputFile {
  std::string path;
  InputKind kind = InputKind::text;
};

// Expands directories to the .txt and .jsonl files below them, compressed or not, in the order of
// their paths. A file of another name is an Error(usage) unless `as` tells what it is.
std::vector<InputFile> collect_inputs(const std::vector<std::string>& paths, const InputKind* as,
                                      PackCounters& counters);

struct InputOptions {
  std::string split_on;  // text files: a line equal to this ends a document; empty: one per file
  std::int64_t max_line_bytes = std::int64_t{16} << 20;     // longer JSONL lines are dropped
  std::int64_t max_document_bytes = std::int64_t{4} << 20;  // longer text is tokenised in parts
};

// Where text longer than `limit` is cut: behind a line feed between non-blank characters if there
// is one in the second half of [0, limit], where byte-level tokenizers cut anyway, so that the ids
// are those of the whole; else before a character. limit < text.size(), result in (0, limit].
std::size_t cut_point(std::string_view text, std::size_t limit);

// A document, or part of one, in InputBatch::text (a whole line for JSONL) or ids.
struct InputPart {
  std::size_t begin = 0;
  std::size_t size = 0;
  InputKind kind = InputKind::text;
  bool ends_document = true;
  std::int32_t file = 0;
  std::int64_t line = 0;    // JSONL: from 1
  std::int64_t offset = 0;  // JSONL: of the line in the decompressed file
};

struct InputBatch {
  std::string text;  // followed by readable bytes, for JSON
  std::vector<std::int32_t> ids;
  std::vector<InputPart> parts;
};

class InputReader {
 public:
  InputReader(std::vector<InputFile> files, InputOptions options);

  // The next batch; false at the end. Reuses the batch's memory.
  bool next(InputBatch& batch);
  [[nodiscard]] const PackCounters& counters() const { return counters_; }
  [[nodiscard]] const std::string& path(std::int32_t file) const {
    return files_[static_cast<std::size_t>(file)].path;
  }

 private:
  enum class Line : std::uint8_t { complete, partial, end };

  bool open_next();
  void read_text(InputBatch& batch);
  void read_jsonl(InputBatch& batch);
  void read_tokens(InputBatch& batch);
  // Appends up to and including the next line feed, at most `limit` bytes.
  Line read_line(std::string& out, std::size_t limit);
  bool refill();

  std::vector<InputFile> files_;
  InputOptions options_;
  PackCounters counters_;
  std::size_t next_file_ = 0;
  bool open_ = false;
  std::unique_ptr<ByteReader> reader_;
  std::vector<char> chunk_;
  std::size_t chunk_begin_ = 0;
  std::size_t chunk_end_ = 0;
  std::int64_t offset_ = 0;  // in the file, of what read_line gives next
  std::int64_t line_ = 0;
  std::string carry_;  // text behind a cut
  bool at_line_begin_ = true;
  std::unique_ptr<Dataset> dataset_;
  std::vector<Dataset::Source> sources_;
  std::size_t source_ = 0;
  std::size_t document_ = 0;
  std::int64_t position_ = 0;
};

}  // namespace belay::data
