#include "belay/data/store_writer.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "belay/base/check.h"
#include "belay/base/error.h"
#include "belay/base/file.h"
#include "belay/base/mapped_file.h"
#include "belay/data/foreign_format.h"
#include "belay/data/row_tokens.h"
#include "belay/data/store_format.h"

namespace belay::data {
namespace {

namespace fs = std::filesystem;

constexpr const char* kIndexFile = "index.idx";

std::span<const std::byte> bytes_of(const auto& value) {
  return std::as_bytes(std::span(&value, 1));
}

// Completes a file of a store.
void seal(OutputFile& file, StoreKind kind, std::size_t item_bytes, std::uint64_t items,
          std::uint64_t parameter) {
  file.finish(encode_header({.kind = kind,
                             .item_bytes = static_cast<std::uint32_t>(item_bytes),
                             .items = items,
                             .parameter = parameter,
                             .payload_hash = file.hash()}));
}

std::string megatron_bin(const std::string& prefix) {
  return prefix + ".bin";
}
std::string megatron_index(const std::string& prefix) {
  return prefix + ".idx";
}

std::string parent_of(const std::string& path) {
  const std::string parent = fs::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

std::string without_slash(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

void rename_file(const std::string& from, const std::string& to) {
  std::error_code error;
  fs::rename(from, to, error);
  if (error) fail(ExitCode::data, "cannot rename {} to {}: {}", from, to, error.message());
}

// Temporary directories of writers of this name whose process is gone.
void remove_abandoned(const std::string& out) {
  const std::string prefix = fs::path(out).filename().string() + ".tmp-";
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(parent_of(out), error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(prefix)) continue;
    ::pid_t pid = 0;
    const char* const end = name.data() + name.size();
    const auto result = std::from_chars(name.data() + prefix.size(), end, pid);
    if (result.ec != std::errc() || result.ptr != end || pid <= 0) continue;
    if (::kill(pid, 0) == 0 || errno != ESRCH) continue;
    fs::remove_all(entry.path(), error);
  }
}

}  // namespace

TokenType type_for_vocab(std::int64_t vocab, StoreFormat format) {
  if (format == StoreFormat::megatron) return vocab < 65500 ? TokenType::u16 : TokenType::i32;
  return vocab <= 65536 ? TokenType::u16 : TokenType::u32;
}

StoreWriter::StoreWriter(StoreWriterOptions options) : options_(std::move(options)) {
  options_.out = without_slash(options_.out);
  const std::string& out = options_.out;
  const bool megatron = options_.format == StoreFormat::megatron;
  const std::vector<std::string> final_names =
      megatron ? std::vector{megatron_index(out), megatron_bin(out)} : std::vector{out};
  for (const std::string& name : final_names) {
    if (fs::exists(name) && !options_.overwrite) {
      fail(ExitCode::usage, "{} exists; choose another --out or allow --overwrite", name);
    }
  }
  if (!megatron && fs::exists(out) && !fs::exists(fs::path(out) / kMetaFile)) {
    fail(ExitCode::usage, "{} exists and is not a token store; it will not be overwritten", out);
  }
  std::error_code error;
  fs::create_directories(parent_of(out), error);
  remove_abandoned(out);
  temporary_ = fmt::format("{}.tmp-{}", out, ::getpid());
  if (!fs::create_directory(temporary_, error)) {
    fail(ExitCode::data, "{}: cannot create: {}", temporary_,
         error ? error.message() : "it exists; another program is writing the same --out");
  }
  try {
    tokens_file_.emplace(part(kTokensFile));
    documents_file_.emplace(part(kDocumentsFile));
    if (!megatron) tokens_file_->reserve_header(kStoreHeaderBytes);
    documents_file_->reserve_header(kStoreHeaderBytes);
    if (options_.row_len > 0) counter_.emplace(options_.row_len);
    if (options_.row_len > 0 && options_.packing != Packing::concat) {
      rows_file_.emplace(part(kRowsFile));
      rows_file_->reserve_header(kStoreHeaderBytes);
      pieces_file_.emplace(part(kPiecesFile));
      pieces_file_->reserve_header(kStoreHeaderBytes);
      packer_ = make_row_packer(options_.packing, options_.row_len,
                                [this](std::span<const Piece> pieces) { emit_row(pieces); });
    }
  } catch (...) {
    remove_temporary();
    throw;
  }
}

StoreWriter::~StoreWriter() {
  remove_temporary();
}

void StoreWriter::remove_temporary() noexcept {
  std::error_code error;
  if (!temporary_.empty()) fs::remove_all(temporary_, error);
}

std::string StoreWriter::part(const char* name) const {
  return (fs::path(temporary_) / name).string();
}

void StoreWriter::append(std::span<const std::int32_t> ids, std::span<const Cut> cuts) {
  if (ids.empty()) return;
  if (counter_) counter_->append(ids.size(), cuts);
  if (packer_) packer_->append(ids.size(), cuts);
  max_id_ = std::max<std::int64_t>(max_id_, *std::max_element(ids.begin(), ids.end()));
  tokens_ += ids.size();
  // Once an id does not fit the file is lost; the rest is read only to name the largest id.
  if (max_id_ > largest_id(options_.type)) return;
  if (width_of(options_.type) == 4) {
    tokens_file_->write(std::as_bytes(ids));
    return;
  }
  scratch_.resize(ids.size() * sizeof(std::uint16_t));
  auto* out = reinterpret_cast<std::uint16_t*>(scratch_.data());
  for (std::size_t i = 0; i < ids.size(); ++i) out[i] = static_cast<std::uint16_t>(ids[i]);
  tokens_file_->write(scratch_);
}

void StoreWriter::end_document() {
  const std::uint64_t length = tokens_ - document_begin_;
  if (length == 0) return;
  documents_file_->write(bytes_of(document_begin_));
  if (counter_) counter_->end_document();
  if (packer_) packer_->end_document();
  document_begin_ = tokens_;
  ++documents_;
}

void StoreWriter::emit_row(std::span<const Piece> pieces) {
  rows_file_->write(bytes_of(pieces_));
  pieces_file_->write(std::as_bytes(pieces));
  pieces_ += pieces.size();
  ++rows_;
}

void StoreWriter::finish(StoreMeta meta, const Tokenizer* tokenizer) {
  BELAY_CHECK(document_begin_ == tokens_);
  if (documents_ == 0) {
    fail(ExitCode::data, "0 documents for {}: the inputs hold no text", options_.out);
  }
  if (max_id_ > largest_id(options_.type)) {
    fail(ExitCode::data,
         "{}: the largest id is {}, but {} holds ids up to {}; leave --dtype to belay or widen it",
         options_.out, max_id_, name_of(options_.type), largest_id(options_.type));
  }
  if (packer_) packer_->finish();
  if (options_.format == StoreFormat::megatron) {
    finish_megatron();
  } else {
    finish_store(meta, tokenizer);
  }
  sync_directory(temporary_);
}

void StoreWriter::finish_store(StoreMeta& meta, const Tokenizer* tokenizer) {
  seal(*tokens_file_, StoreKind::tokens, static_cast<std::size_t>(width_of(options_.type)), tokens_,
       static_cast<std::uint64_t>(max_id_));
  documents_file_->write(bytes_of(tokens_));
  seal(*documents_file_, StoreKind::documents, sizeof(std::uint64_t),
       static_cast<std::uint64_t>(documents_) + 1, 0);
  meta.documents = documents_;
  meta.tokens = tokens();
  meta.max_id = max_id_;
  if (packer_) {
    finish_rows(meta.pad_id);
    meta.row_len = options_.row_len;
    meta.rows = rows();
    meta.packing = name_of(options_.packing);
  }
  if (tokenizer != nullptr) {
    meta.tokenizer = tokenizer->file_name();
    tokenizer->save(part(meta.tokenizer.c_str()));
  }
  write_file(part(kMetaFile), encode_meta(meta));
}

void StoreWriter::finish_rows(std::int64_t pad_id) {
  const auto row_len = static_cast<std::uint64_t>(options_.row_len);
  rows_file_->write(bytes_of(pieces_));
  seal(*rows_file_, StoreKind::rows, sizeof(std::uint64_t), rows_ + 1, row_len);
  seal(*pieces_file_, StoreKind::pieces, sizeof(Piece), pieces_, 0);
  // The rows are known by now only, hence the ids are read back.
  const std::int64_t width = width_of(options_.type);
  OutputFile file(part(kRowTokensFile));
  file.reserve_header(kStoreHeaderBytes);
  write_row_tokens(temporary_, width, options_.row_len,
                   pad_id <= largest_id(options_.type) ? pad_id : 0, file);
  const auto stride = static_cast<std::uint64_t>(row_stride(options_.row_len, width));
  seal(file, StoreKind::row_tokens, static_cast<std::size_t>(width), rows_ * stride, row_len);
}

void StoreWriter::finish_megatron() {
  tokens_file_->finish();
  documents_file_->write(bytes_of(tokens_));
  documents_file_->finish();
  const MappedFile file(documents_file_->path());
  const std::span<const std::uint64_t> starts = payload_of<std::uint64_t>(file.bytes());
  OutputFile index(part(kIndexFile));
  write_megatron_index(starts, options_.type,
                       [&](std::span<const std::byte> bytes) { index.write(bytes); });
  index.finish();
}

void StoreWriter::publish() {
  const std::string& out = options_.out;
  if (options_.format == StoreFormat::megatron) {
    // Readers look for the index, so it goes last.
    std::error_code error;
    fs::remove(megatron_index(out), error);
    rename_file(part(kTokensFile), megatron_bin(out));
    rename_file(part(kIndexFile), megatron_index(out));
  } else if (fs::exists(out)) {
    // The two directories change names in one step; the old one is then the temporary one.
    if (::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, out.c_str(), RENAME_EXCHANGE) != 0) {
      fail(ExitCode::data, "{}: cannot replace it: {}; remove it and pack again", out,
           std::strerror(errno));
    }
  } else {
    rename_file(temporary_, out);
  }
  sync_directory(parent_of(out));
  remove_temporary();
  temporary_.clear();
}

}  // namespace belay::data
