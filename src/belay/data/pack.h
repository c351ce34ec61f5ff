#pragma once
// pack: text or token files into a token store. See docs/data.md for the rules.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "belay/data/input_reader.h"
#include "belay/data/store_writer.h"

namespace belay::data {

struct PackProgress {
  std::int64_t text_bytes = 0;
  std::int64_t documents = 0;
  std::int64_t tokens = 0;
};

struct PackOptions {
  std::vector<std::string> inputs;
  std::optional<InputKind> input_kind;  // for files that the name does not tell about
  std::string out;
  StoreFormat format = StoreFormat::belay;
  // A spec for load_tokenizer(), or "train:VOCAB". Empty: only for inputs that are tokens.
  std::string tokenizer;
  std::string text_key = "text";
  InputOptions input;
  bool append_eod = false;
  bool map_special = false;       // text of special tokens becomes their id
  bool skip_bad = false;          // drop lines that are not what they should be, and count
  std::optional<TokenType> type;  // else by the vocabulary
  std::int64_t row_len = 0;       // > 0: pack rows of this length
  Packing packing = Packing::sentences;
  std::string val_out;      // hold out documents into this store
  double val_share = 0.01;  // of the documents
  int threads = 0;          // 0: all cores
  bool overwrite = false;
  std::function<void(const PackProgress&)> progress;  // called now and then
};

// What a way of packing makes of the documents.
struct PackingFigures {
  std::int64_t rows = 0;
  double padding_share = 0.0;
  // Share of the documents that are cut in the middle of a sentence, somewhere; none if sentences
  // were not looked for.
  std::optional<double> cut_share;
};

struct PackedStore {
  std::string path;
  std::int64_t documents = 0;
  std::int64_t tokens = 0;
  std::int64_t pieces = 0;                // into which packing cut the documents
  std::optional<PackingFigures> packing;  // of the rows, if there are any; what follows likewise:
  PackingFigures concat;                  // documents one after another, cut where a row ends
  PackingFigures document_per_row;        // each document in rows of its own
};

struct PackReport {
  PackedStore train;
  std::optional<PackedStore> val;
  PackCounters counters;
  std::string tokenizer;
  std::int64_t vocab_size = 0;
  TokenType type = TokenType::u16;
  std::int64_t row_len = 0;
  Packing packing = Packing::sentences;
  double seconds = 0.0;

  [[nodiscard]] std::int64_t tokens() const { return train.tokens + (val ? val->tokens : 0); }
  [[nodiscard]] double bytes_per_token() const {
    return tokens() > 0 ? static_cast<double>(counters.text_bytes) / static_cast<double>(tokens())
                        : 0.0;
  }
};

// Errors: usage for options that contradict each other, data for inputs (file, line, byte), data if
// nothing is left to write. On any error nothing stands under a final name.
PackReport pack(const PackOptions& options);

}  // namespace belay::data
