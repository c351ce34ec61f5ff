#pragma once
// What the ways of packing would make of the same documents: rows, and documents cut in the middle
// of a sentence. Counted while packing, in memory that does not grow.

#include <cstdint>
#include <span>

#include "belay/data/sentence_cuts.h"

namespace belay::data {

// Documents cut in the middle of a sentence, by the way of packing.
struct CutDocuments {
  std::int64_t concat = 0;            // one after another, cut where a row ends
  std::int64_t document_per_row = 0;  // each from the start of a row, cut where a row ends
  std::int64_t sentences = 0;         // cut between sentences, and in those longer than a row
};

class PackingCounter {
 public:
  // row_len > 0
  explicit PackingCounter(std::int64_t row_len) : row_len_(static_cast<std::uint64_t>(row_len)) {}

  // As RowPacker.
  void append(std::uint64_t tokens, std::span<const Cut> cuts);
  void end_document();

  [[nodiscard]] std::int64_t concat_rows() const {
    return static_cast<std::int64_t>((position_ + row_len_ - 1) / row_len_);
  }
  [[nodiscard]] std::int64_t document_per_row_rows() const {
    return static_cast<std::int64_t>(rows_);
  }
  // Means something only if the cuts were looked for.
  [[nodiscard]] const CutDocuments& cut_documents() const { return cut_; }

 private:
  // Whether a row that begins at a multiple of the row length behind `origin` ends between two
  // sentences each time, so far.
  struct Edges {
    std::uint64_t origin = 0;
    bool cut = false;
    bool at_edge = false;  // here a row ends in a sentence; it is a cut if the document goes on

    void pass(std::uint64_t row_len, std::uint64_t begin, std::uint64_t end,
              std::span<const Cut> cuts);
  };

  std::uint64_t row_len_;
  std::uint64_t position_ = 0;
  std::uint64_t begin_ = 0;     // of the open document
  std::uint64_t last_cut_ = 0;  // or its begin
  bool long_sentence_ = false;
  Edges concat_;
  Edges alone_;
  std::uint64_t rows_ = 0;
  CutDocuments cut_;
};

}  // namespace belay::data
