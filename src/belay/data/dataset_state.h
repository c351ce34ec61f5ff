#pragma once
// Inside of Dataset, shared by its two files.

#include <algorithm>
#include <limits>

#include "belay/base/mapped_file.h"
#include "belay/data/dataset.h"
#include "belay/data/store_format.h"

namespace belay::data {

// A file of tokens with its documents.
struct TokenFile {
  MappedFile file;
  TokenView tokens;
  MappedFile starts_file;                   // of a store
  std::vector<std::uint64_t> starts_owned;  // of other formats
  std::span<const std::uint64_t> starts;
  std::int64_t first_row = 0;

  [[nodiscard]] std::size_t document_at(std::int64_t position) const {
    const auto next =
        std::upper_bound(starts.begin(), starts.end(), static_cast<std::uint64_t>(position));
    return static_cast<std::size_t>(next - starts.begin()) - 1;
  }
};

struct Dataset::State {
  std::string path;
  std::int64_t seq_len = 0;
  bool rows_wanted = true;
  std::vector<TokenFile> sources;
  MappedFile rows_file;
  MappedFile pieces_file;
  std::span<const std::uint64_t> rows;  // packed rows only
  std::span<const Piece> pieces;
  MappedFile row_tokens_file;
  TokenView row_tokens;
  std::int64_t stride = 0;  // from row to row in it
  std::int64_t samples = 0;
  std::int64_t tokens = 0;
  std::int64_t documents = 0;
  std::int64_t limit = std::numeric_limits<std::int32_t>::max();  // largest id that may be met
  bool limit_from_header = false;
  std::int32_t vocab_size = 0;
  std::int32_t pad_id = 0;
  std::string tokenizer;

  void open(const std::string& given);
  void open_store();
  void open_rows(const TokenFile& source);
  void open_megatron(const std::string& prefix);
  void open_llmc(const std::string& file);
  void finish();
  void read_ids(const TokenFile& source, std::int64_t begin, std::span<std::int32_t> ids) const;
  void read_row(std::int64_t sample, std::span<std::int32_t> ids) const;
  std::int64_t mark_piece(const TokenFile& source, std::int64_t begin, std::int64_t length,
                          std::int64_t at, const RowSpans& row) const;
  void pad(std::int64_t at, const RowSpans& row) const;
  [[nodiscard]] const TokenFile& source_of(std::int64_t sample) const;
};

}  // namespace belay::data
