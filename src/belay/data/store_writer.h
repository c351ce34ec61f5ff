#pragma once
// StoreWriter: writes documents into a token store or a Megatron pair under temporary names and
// publishes them at the end. Memory does not grow with the number of tokens or documents. Until
// publish() returns nothing stands under the final name; the destructor removes what is temporary.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "belay/data/output_file.h"
#include "belay/data/packing_figures.h"
#include "belay/data/row_packer.h"
#include "belay/data/store_meta.h"
#include "belay/data/token_view.h"
#include "belay/data/tokenizer.h"

namespace belay::data {

enum class StoreFormat : std::uint8_t { belay, megatron };

struct StoreWriterOptions {
  std::string out;  // a directory; for Megatron the prefix of .bin and .idx
  StoreFormat format = StoreFormat::belay;
  TokenType type = TokenType::u16;  // u16 or u32; Megatron: u16 or i32
  std::int64_t row_len = 0;         // > 0: also pack rows of this length
  Packing packing = Packing::sentences;
  bool overwrite = false;
};

// The narrowest type for ids below `vocab`. Megatron-LM itself changes at 65,500.
TokenType type_for_vocab(std::int64_t vocab, StoreFormat format);

class StoreWriter {
 public:
  // Error(usage) if the output exists and is not to be overwritten.
  explicit StoreWriter(StoreWriterOptions options);
  StoreWriter(const StoreWriter&) = delete;
  StoreWriter& operator=(const StoreWriter&) = delete;
  ~StoreWriter();

  // Adds ids (>= 0) to the document that is open; cuts count from the first of them.
  void append(std::span<const std::int32_t> ids, std::span<const Cut> cuts = {});
  // Ends it. A document without tokens leaves no trace.
  void end_document();

  [[nodiscard]] std::int64_t documents() const { return documents_; }
  [[nodiscard]] std::int64_t tokens() const { return static_cast<std::int64_t>(tokens_); }
  [[nodiscard]] std::int64_t document_tokens() const {  // of the open document
    return static_cast<std::int64_t>(tokens_ - document_begin_);
  }
  [[nodiscard]] std::int64_t rows() const { return static_cast<std::int64_t>(rows_); }
  [[nodiscard]] std::int64_t pieces() const { return static_cast<std::int64_t>(pieces_); }
  // What other ways of packing would make of the documents; null without a row length.
  [[nodiscard]] const PackingCounter* figures() const { return counter_ ? &*counter_ : nullptr; }
  [[nodiscard]] TokenType type() const { return options_.type; }

  // Completes the files under their temporary names. `meta` gets the writer's own numbers;
  // `tokenizer`, if any, is saved beside. Error(data) if an id did not fit the type, or for 0
  // documents.
  void finish(StoreMeta meta, const Tokenizer* tokenizer);
  // Moves them to the final name. After finish(), so that several outputs appear together or not
  // at all as far as errors go.
  void publish();

 private:
  void emit_row(std::span<const Piece> pieces);
  void finish_store(StoreMeta& meta, const Tokenizer* tokenizer);
  void finish_rows(std::int64_t pad_id);
  void finish_megatron();
  void remove_temporary() noexcept;
  [[nodiscard]] std::string part(const char* name) const;

  StoreWriterOptions options_;
  std::string temporary_;  // directory in which everything is written first
  std::optional<OutputFile> tokens_file_;
  std::optional<OutputFile> documents_file_;
  std::optional<OutputFile> rows_file_;
  std::optional<OutputFile> pieces_file_;
  std::unique_ptr<RowPacker> packer_;
  std::optional<PackingCounter> counter_;
  std::vector<std::byte> scratch_;
  std::uint64_t tokens_ = 0;
  std::uint64_t document_begin_ = 0;
  std::uint64_t rows_ = 0;
  std::uint64_t pieces_ = 0;
  std::int64_t documents_ = 0;
  std::int64_t max_id_ = 0;
};

}  // namespace belay::data
