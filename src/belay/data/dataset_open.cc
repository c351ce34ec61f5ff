#include <filesystem>

#include "belay/base/error.h"
#include "belay/base/log.h"
#include "belay/base/parallel.h"
#include "belay/data/dataset_state.h"
#include "belay/data/foreign_format.h"
#include "belay/data/row_tokens.h"
#include "belay/data/store_meta.h"

namespace belay::data {
namespace {

namespace fs = std::filesystem;

}  // namespace

void Dataset::State::open_store() {
  const fs::path directory(path);
  const MappedFile meta_file((directory / kMetaFile).string());
  const std::string text(reinterpret_cast<const char*>(meta_file.bytes().data()),
                         meta_file.bytes().size());
  const StoreMeta meta = parse_meta(text, meta_file.path());

  TokenFile source;
  source.file = MappedFile((directory / kTokensFile).string());
  const StoreHeader header =
      parse_header(source.file.bytes(), StoreKind::tokens, source.file.path());
  source.tokens = {source.file.bytes().data() + kStoreHeaderBytes,
                   static_cast<std::int64_t>(header.items),
                   header.item_bytes == 2 ? TokenType::u16 : TokenType::u32};
  if (header.parameter > static_cast<std::uint64_t>(largest_id(source.tokens.type))) {
    fail(ExitCode::data, "{}: largest id {} does not fit {}", source.file.path(), header.parameter,
         name_of(source.tokens.type));
  }
  limit = static_cast<std::int64_t>(header.parameter);
  limit_from_header = true;

  source.starts_file = MappedFile((directory / kDocumentsFile).string());
  parse_header(source.starts_file.bytes(), StoreKind::documents, source.starts_file.path());
  source.starts = payload_of<std::uint64_t>(source.starts_file.bytes());
  check_starts(source.starts, header.items, source.starts_file.path());

  if (rows_wanted && meta.row_len > 0 && meta.row_len == seq_len) {
    open_rows(source);
  } else if (meta.row_len > 0 && rows_wanted) {
    log::info("{}: packed for rows of {}, cut from the stream for {} instead", path, meta.row_len,
              seq_len);
  }
  if (meta.vocab_size > std::numeric_limits<std::int32_t>::max() ||
      meta.pad_id > std::numeric_limits<std::int32_t>::max()) {
    fail(ExitCode::data, "{}: vocab_size {} or pad_id {} is out of range", meta_file.path(),
         meta.vocab_size, meta.pad_id);
  }
  vocab_size = static_cast<std::int32_t>(meta.vocab_size);
  pad_id = static_cast<std::int32_t>(meta.pad_id);
  if (!meta.tokenizer.empty()) tokenizer = (directory / meta.tokenizer).string();
  sources.push_back(std::move(source));
}

void Dataset::State::open_rows(const TokenFile& source) {
  const fs::path directory(path);
  rows_file = MappedFile((directory / kRowsFile).string());
  pieces_file = MappedFile((directory / kPiecesFile).string());
  row_tokens_file = MappedFile((directory / kRowTokensFile).string());
  const auto length = static_cast<std::uint64_t>(seq_len);
  const auto open_part = [&](const MappedFile& file, StoreKind kind, std::uint64_t parameter) {
    const StoreHeader header = parse_header(file.bytes(), kind, file.path());
    if (header.parameter != parameter) {
      fail(ExitCode::data, "{}: rows of {} tokens, {} says {}", file.path(), header.parameter,
           kMetaFile, seq_len);
    }
    return header;
  };
  open_part(rows_file, StoreKind::rows, length);
  open_part(pieces_file, StoreKind::pieces, 0);
  const StoreHeader header = open_part(row_tokens_file, StoreKind::row_tokens, length);
  rows = payload_of<std::uint64_t>(rows_file.bytes());
  pieces = payload_of<Piece>(pieces_file.bytes());
  check_rows(rows, pieces, source.starts, length, rows_file.path(), pieces_file.path());
  stride = row_stride(seq_len, header.item_bytes);
  const auto expected = (rows.size() - 1) * static_cast<std::uint64_t>(stride);
  if (header.items != expected) {
    fail(ExitCode::data, "{}: {} ids, {} rows of {} need {}", row_tokens_file.path(), header.items,
         rows.size() - 1, stride, expected);
  }
  row_tokens = {row_tokens_file.bytes().data() + kStoreHeaderBytes,
                static_cast<std::int64_t>(header.items),
                header.item_bytes == 2 ? TokenType::u16 : TokenType::u32};
}

void Dataset::State::open_megatron(const std::string& prefix) {
  TokenFile source;
  source.file = MappedFile(prefix + ".bin");
  const MappedFile index_file(prefix + ".idx");
  MegatronIndex index =
      parse_megatron_index(index_file.bytes(), source.file.bytes().size(), index_file.path());
  source.starts_owned = std::move(index.documents);
  source.starts = source.starts_owned;
  source.tokens = {source.file.bytes().data(), static_cast<std::int64_t>(source.starts.back()),
                   index.type};
  sources.push_back(std::move(source));
}

void Dataset::State::open_llmc(const std::string& file) {
  TokenFile source;
  source.file = MappedFile(file);
  source.tokens = parse_llmc(source.file.bytes(), file);
  source.starts_owned = {0, static_cast<std::uint64_t>(source.tokens.count)};
  source.starts = source.starts_owned;
  sources.push_back(std::move(source));
}

void Dataset::State::finish() {
  for (TokenFile& source : sources) {
    source.first_row = samples;
    samples += pieces_of(source.tokens.count, seq_len);
    tokens += source.tokens.count;
    for (std::size_t i = 1; i < source.starts.size(); ++i) {
      if (source.starts[i] > source.starts[i - 1]) ++documents;
    }
  }
  if (!rows.empty()) samples = std::ssize(rows) - 1;
  if (samples == 0) fail(ExitCode::data, "{}: holds no tokens", path);
}

void Dataset::State::open(const std::string& given) {
  path = given;
  std::string prefix = path;
  if (prefix.ends_with(".bin") || prefix.ends_with(".idx")) prefix.resize(prefix.size() - 4);

  if (fs::is_directory(path) && fs::exists(fs::path(path) / kMetaFile)) {
    open_store();
  } else if (fs::is_directory(path)) {
    std::vector<std::string> files;
    for (const auto& entry : fs::directory_iterator(path)) {
      if (entry.path().extension() == ".bin") files.push_back(entry.path().string());
    }
    std::sort(files.begin(), files.end());
    if (files.empty()) {
      fail(ExitCode::data, "{}: neither a token store (no {}) nor a directory of .bin files", path,
           kMetaFile);
    }
    for (const std::string& file : files) open_llmc(file);
  } else if (fs::exists(prefix + ".idx")) {
    open_megatron(prefix);
  } else if (fs::is_regular_file(path)) {
    open_llmc(path);
  } else {
    fail(
        ExitCode::data,
        "{}: no such dataset; expected a directory written by `belay pack`, a Megatron prefix with "
        ".bin and .idx, or an llm.c token file",
        path);
  }
  finish();
}

}  // namespace belay::data
