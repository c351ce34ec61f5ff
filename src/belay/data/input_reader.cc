#include "belay/data/input_reader.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <string_view>

#include "belay/base/check.h"
#include "belay/base/error.h"
#include "belay/data/jsonl.h"
#include "belay/data/store_format.h"

namespace belay::data {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBatchBytes = std::size_t{1} << 18;
constexpr std::size_t kChunkBytes = std::size_t{1} << 18;
constexpr std::int64_t kTokensPerPart = std::int64_t{1} << 16;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

bool is_blank(char letter) {
  return letter == ' ' || (letter >= '\t' && letter <= '\r');
}

bool is_continuation(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0U) == 0x80U;
}

const InputKind* kind_by_name(const std::string& path) {
  static constexpr InputKind kText = InputKind::text;
  static constexpr InputKind kJsonl = InputKind::jsonl;
  const std::string name = without_compression(path);
  if (name.ends_with(".txt")) return &kText;
  if (name.ends_with(".jsonl")) return &kJsonl;
  return nullptr;
}

void expand_directory(const std::string& directory, const InputKind* as,
                      std::vector<InputFile>& files, PackCounters& counters) {
  std::vector<std::string> paths;
  bool token_files = false;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    if (!entry.is_regular_file()) continue;
    token_files = token_files || entry.path().extension() == ".bin";
    paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  const std::size_t before = files.size();
  for (const std::string& path : paths) {
    const InputKind* kind = kind_by_name(path);
    if (kind == nullptr) kind = as;
    if (kind == nullptr) {
      ++counters.files_skipped;
    } else {
      files.push_back({path, *kind});
    }
  }
  if (files.size() > before) return;
  if (!token_files) {
    fail(ExitCode::data, "{}: no .txt or .jsonl file below this directory", directory);
  }
  counters.files_skipped = 0;
  files.push_back({directory, InputKind::tokens});
}

}  // namespace

std::vector<InputFile> collect_inputs(const std::vector<std::string>& paths, const InputKind* as,
                                      PackCounters& counters) {
  std::vector<InputFile> files;
  for (const std::string& path : paths) {
    if (fs::is_directory(path)) {
      if (fs::exists(fs::path(path) / kMetaFile)) {
        files.push_back({path, InputKind::tokens});
      } else {
        expand_directory(path, as, files, counters);
      }
    } else if (const InputKind* kind = as != nullptr ? as : kind_by_name(path)) {
      if (!fs::exists(path)) fail(ExitCode::data, "{}: no such file", path);
      files.push_back({path, *kind});
    } else if (path.ends_with(".bin") || path.ends_with(".idx") || fs::exists(path + ".idx")) {
      files.push_back({path, InputKind::tokens});
    } else if (fs::exists(path)) {
      fail(ExitCode::usage, "{}: not a kind of file known by its name; say --input text or jsonl",
           path);
    } else {
      fail(ExitCode::data, "{}: no such file", path);
    }
  }
  return files;
}

std::size_t cut_point(std::string_view text, std::size_t limit) {
  BELAY_CHECK(limit > 0 && limit < text.size());
  for (std::size_t at = limit; at > limit / 2 && at >= 2; --at) {
    if (text[at - 1] == '\n' && !is_blank(text[at - 2]) && !is_blank(text[at])) return at;
  }
  std::size_t at = limit;
  // A UTF-8 character has at most four bytes; more continuation bytes are not text.
  for (int i = 0; i < 3 && at > 1 && is_continuation(text[at]); ++i) --at;
  return is_continuation(text[at]) ? limit : at;
}

InputReader::InputReader(std::vector<InputFile> files, InputOptions options)
    : files_(std::move(files)), options_(std::move(options)), chunk_(kChunkBytes) {
  BELAY_CHECK(options_.max_line_bytes > 0 && options_.max_document_bytes > 0);
}

bool InputReader::open_next() {
  if (next_file_ == files_.size()) return false;
  const InputFile& file = files_[next_file_++];
  ++counters_.files;
  open_ = true;
  offset_ = 0;
  line_ = 0;
  at_line_begin_ = true;
  chunk_begin_ = chunk_end_ = 0;
  if (file.kind == InputKind::tokens) {
    dataset_ = std::make_unique<Dataset>(Dataset::open_documents(file.path));
    sources_ = dataset_->sources();
    source_ = 0;
    document_ = 0;
    position_ = 0;
    return true;
  }
  reader_ = open_reader(file.path);
  // A mark is three bytes; a reader may give fewer at a time.
  while (chunk_end_ < kByteOrderMark.size()) {
    const std::size_t count = reader_->read(std::span(chunk_).subspan(chunk_end_));
    if (count == 0) break;
    chunk_end_ += count;
  }
  counters_.bytes_read += static_cast<std::int64_t>(chunk_end_);
  if (std::string_view(chunk_.data(), chunk_end_).starts_with(kByteOrderMark)) {
    chunk_begin_ = kByteOrderMark.size();
    offset_ = static_cast<std::int64_t>(kByteOrderMark.size());
    ++counters_.byte_order_marks;
  }
  return true;
}

bool InputReader::refill() {
  if (chunk_begin_ < chunk_end_) return true;
  chunk_begin_ = 0;
  chunk_end_ = reader_->read(chunk_);
  counters_.bytes_read += static_cast<std::int64_t>(chunk_end_);
  return chunk_end_ > 0;
}

InputReader::Line InputReader::read_line(std::string& out, std::size_t limit) {
  std::size_t taken = 0;
  while (taken < limit) {
    if (!refill()) return taken == 0 ? Line::end : Line::complete;
    const char* from = chunk_.data() + chunk_begin_;
    const std::size_t room = std::min(chunk_end_ - chunk_begin_, limit - taken);
    const void* found = std::memchr(from, '\n', room);
    const std::size_t count =
        found == nullptr ? room
                         : static_cast<std::size_t>(static_cast<const char*>(found) - from) + 1;
    out.append(from, count);
    chunk_begin_ += count;
    taken += count;
    offset_ += static_cast<std::int64_t>(count);
    if (found != nullptr) return Line::complete;
  }
  return Line::partial;
}

bool InputReader::next(InputBatch& batch) {
  batch.text.clear();
  batch.ids.clear();
  batch.parts.clear();
  while (batch.text.size() < kBatchBytes && std::ssize(batch.ids) < kTokensPerPart) {
    if (!open_ && !open_next()) break;
    switch (files_[next_file_ - 1].kind) {
      case InputKind::text:
        read_text(batch);
        break;
      case InputKind::jsonl:
        read_jsonl(batch);
        break;
      case InputKind::tokens:
        read_tokens(batch);
        break;
    }
  }
  batch.text.reserve(batch.text.size() + kJsonPadding);
  return !batch.parts.empty();
}

// One document or one part of it. Text is appended line by line; what lies behind a cut waits in
// carry_ for the next call.
void InputReader::read_text(InputBatch& batch) {
  InputPart part{.begin = batch.text.size(),
                 .size = 0,
                 .kind = InputKind::text,
                 .ends_document = true,
                 .file = static_cast<std::int32_t>(next_file_ - 1),
                 .line = 0,
                 .offset = 0};
  batch.text += carry_;
  carry_.clear();
  const auto limit = static_cast<std::size_t>(options_.max_document_bytes);
  for (;;) {
    if (batch.text.size() - part.begin > limit) {
      const std::string_view text = std::string_view(batch.text).substr(part.begin);
      const std::size_t cut = cut_point(text, limit);
      carry_ = text.substr(cut);
      batch.text.resize(part.begin + cut);
      part.ends_document = false;
      ++counters_.documents_cut;
      break;
    }
    const std::size_t line_begin = batch.text.size();
    const Line line = read_line(batch.text, std::min(kChunkBytes, limit));
    const bool whole_line = at_line_begin_ && line == Line::complete;
    at_line_begin_ = line == Line::complete;
    if (line == Line::end) {
      open_ = false;
      // A file that ends with its separator has no further document.
      if (line_ > 0 && batch.text.size() == part.begin) return;
      break;
    }
    if (!whole_line || options_.split_on.empty()) continue;
    std::string_view content = std::string_view(batch.text).substr(line_begin);
    while (content.ends_with('\n') || content.ends_with('\r')) content.remove_suffix(1);
    if (content == options_.split_on) {
      batch.text.resize(line_begin);
      ++line_;  // here: documents ended by a separator
      break;
    }
  }
  part.size = batch.text.size() - part.begin;
  batch.parts.push_back(part);
}

void InputReader::read_jsonl(InputBatch& batch) {
  const auto limit = static_cast<std::size_t>(options_.max_line_bytes);
  while (batch.text.size() < kBatchBytes) {
    InputPart part{.begin = batch.text.size(),
                   .size = 0,
                   .kind = InputKind::jsonl,
                   .ends_document = true,
                   .file = static_cast<std::int32_t>(next_file_ - 1),
                   .line = line_ + 1,
                   .offset = offset_};
    // The line feed does not count against the limit.
    Line line = read_line(batch.text, limit + 1);
    if (line == Line::end) {
      open_ = false;
      return;
    }
    ++line_;
    ++counters_.lines;
    if (line == Line::partial) {
      ++counters_.lines_too_long;
      while (line == Line::partial) {
        batch.text.resize(part.begin);
        line = read_line(batch.text, kChunkBytes);
      }
      batch.text.resize(part.begin);
      continue;
    }
    const std::string_view content = std::string_view(batch.text).substr(part.begin);
    if (std::all_of(content.begin(), content.end(), is_blank)) {
      ++counters_.lines_blank;
      batch.text.resize(part.begin);
      continue;
    }
    part.size = content.size();
    batch.parts.push_back(part);
  }
}

void InputReader::read_tokens(InputBatch& batch) {
  while (std::ssize(batch.ids) < kTokensPerPart) {
    if (source_ == sources_.size()) {
      open_ = false;
      dataset_.reset();
      return;
    }
    const Dataset::Source& source = sources_[source_];
    if (document_ + 1 >= source.starts.size()) {
      ++source_;
      document_ = 0;
      position_ = 0;
      continue;
    }
    const auto end = static_cast<std::int64_t>(source.starts[document_ + 1]);
    const std::int64_t count = std::min(end - position_, kTokensPerPart);
    const InputPart part{.begin = batch.ids.size(),
                         .size = static_cast<std::size_t>(count),
                         .kind = InputKind::tokens,
                         .ends_document = position_ + count == end,
                         .file = static_cast<std::int32_t>(next_file_ - 1),
                         .line = 0,
                         .offset = 0};
    batch.ids.resize(batch.ids.size() + part.size);
    source.tokens.read(position_, std::span(batch.ids).subspan(part.begin));
    batch.parts.push_back(part);
    position_ += count;
    if (part.ends_document) ++document_;
  }
}

}  // namespace belay::data
