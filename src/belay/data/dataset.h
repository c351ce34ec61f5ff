#pragma once
// Dataset: token files seen as rows of seq_len tokens, for training and evaluation. Files are
// mapped; a row is read straight from the mapping into the caller's batch.
//
// Rows. The documents of a file lie one after another and are cut every seq_len tokens; a document
// that does not end with its row goes on in the next one. The last row of a file may be partial. A
// store that was packed for this very seq_len (`belay pack --seq-len`) has its own rows instead, in
// which short documents are whole.
//
// The rule of labels: the target of a token is the next token of the same document, also where the
// row ends in between (the label is then the first token of the document's next row). So in one
// epoch each token is input once, and each but the first of its document is a target once: no token
// is lost to cutting, and the number of counted targets is tokens - documents whatever seq_len and
// batch are.
//
// Isolation: doc_begin is the first position in the row of the token's own document, for attention;
// positions restart there. Context does not go on across rows. What a row lacks to seq_len is
// padding: a segment of its own with target -1, so it counts in nothing.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "belay/data/token_view.h"

namespace belay::data {

// One row to be filled, seq_len elements each.
struct RowSpans {
  std::span<std::int32_t> tokens;
  std::span<std::int32_t> targets;    // -1: not counted
  std::span<std::int32_t> positions;  // restart at every document
  std::span<std::int32_t> doc_begin;  // first position in the row of this token's document
};

class Dataset {
 public:
  // `path`: a store that `belay pack` wrote; a Megatron prefix (or its .bin or .idx); an llm.c
  // token file; or a directory of llm.c token files, taken in the order of their names. An llm.c
  // file has no document boundaries and is one document. Error(data) for anything missing or
  // damaged.
  static Dataset open(const std::string& path, std::int64_t seq_len);
  // For sources() alone: the documents, whatever rows they were packed in.
  static Dataset open_documents(const std::string& path);

  Dataset(Dataset&&) noexcept;
  Dataset& operator=(Dataset&&) noexcept;
  ~Dataset();

  [[nodiscard]] std::int64_t samples() const;  // rows per epoch
  [[nodiscard]] std::int64_t seq_len() const;
  [[nodiscard]] std::int64_t tokens() const;
  [[nodiscard]] std::int64_t documents() const;  // those with at least one token
  // Targets that count in one epoch: tokens - documents.
  [[nodiscard]] std::int64_t counted() const { return tokens() - documents(); }
  // Share of row positions that are padding.
  [[nodiscard]] double padding_share() const;
  // True if the rows are the ones the store was packed with, false if they are cut from the stream.
  [[nodiscard]] bool packed_rows() const;

  // Largest id. From the header of a store; for other formats this reads every token.
  [[nodiscard]] std::int32_t max_id() const;
  // Of the tokenizer that made the ids; 0 if not known.
  [[nodiscard]] std::int32_t vocab_size() const;
  // The tokenizer that was carried along, as a spec for load_tokenizer(); empty if there is none.
  [[nodiscard]] const std::string& tokenizer() const;

  // Refuses ids >= vocab, naming file, document and id, and makes fill() do the same from now on.
  // Call before the first step.
  void check_ids(std::int32_t vocab);
  // Reads everything and compares the checksums of a store. Error(data) names the file.
  void verify() const;

  // Fills one row and returns its number of counted targets. sample in [0, samples()). Thread-safe,
  // allocates nothing. Error(data) if the file holds an id that its header excludes.
  std::int64_t fill(std::int64_t sample, const RowSpans& row) const;
  // A row of padding alone.
  void fill_padding(const RowSpans& row) const;
  // Asks the system to read a row's pages ahead of fill().
  void prefetch(std::int64_t sample) const;

  // The documents themselves, for reading a dataset as input; views into the dataset.
  struct Source {
    std::string path;
    TokenView tokens;
    std::span<const std::uint64_t> starts;  // of each document, and the total
  };
  [[nodiscard]] std::vector<Source> sources() const&;
  std::vector<Source> sources() const&& = delete;

 private:
  struct State;
  explicit Dataset(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace belay::data
