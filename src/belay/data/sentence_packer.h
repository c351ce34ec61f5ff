#pragma once
// SentencePacker: rows that are full and divide no sentence.
//
// First level: documents are cut between sentences only, into chunks as long as a row allows. Only
// a sentence longer than a row is cut inside. Second level: best fit. A row begins with a long
// document's next chunk, or else the longest short document; what remains is filled with the short
// document that fits best, or with a chunk of another long document that ends where the row does.
// A short document is cut (between sentences) only if nothing else fills the row.
//
// Open are at most a window of tokens or of rows, whichever is more, as sections: a document, or
// part of one that is many rows long, so that a single book can be packed as well as many pages.

#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "belay/data/row_packer.h"

namespace belay::data {

class SentencePacker final : public RowPacker {
 public:
  SentencePacker(std::int64_t row_len, Emit emit);

  void append(std::uint64_t tokens, std::span<const Cut> cuts) override;
  void end_document() override;
  void finish() override;

 private:
  // Tokens [begin, end) of one document that are in no row yet.
  struct Section {
    std::uint64_t document = 0;
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    std::size_t next = 0;   // first of the cuts behind begin
    std::vector<Cut> cuts;  // Cut::at counts from the first token of all; < end

    [[nodiscard]] std::uint64_t length() const { return end - begin; }
  };
  struct RowPiece {
    std::uint64_t document = 0;
    std::uint64_t begin = 0;
    std::uint64_t length = 0;
  };
  struct Prefix {  // of a section in long_
    std::size_t section = 0;
    std::uint64_t length = 0;
  };

  void close_section(std::uint64_t end);
  void keep(Section section);
  void build_row();
  bool fill();
  void take(Section& section, std::uint64_t length);
  void take_long(std::size_t index, std::uint64_t length);
  void take_short(std::uint64_t length);
  bool split_short();
  void emit_row();
  [[nodiscard]] std::uint64_t first_chunk(const Section& section) const;
  [[nodiscard]] bool fillable(std::uint64_t space, bool cutting) const;
  [[nodiscard]] std::uint64_t longest_short(std::uint64_t space) const;
  [[nodiscard]] Prefix longest_prefix(std::uint64_t space) const;

  std::uint64_t row_len_;
  std::uint64_t tolerance_;  // padding that is not worth a cut
  std::uint64_t shortest_;   // chunk that is cut off to fill a row
  std::uint64_t window_;
  Emit emit_;

  std::uint64_t position_ = 0;  // tokens so far
  Section open_;
  std::deque<Section> long_;                             // longer than a row, oldest first
  std::map<std::uint64_t, std::vector<Section>> short_;  // by length
  std::uint64_t long_tokens_ = 0;
  std::uint64_t short_tokens_ = 0;
  std::size_t sections_ = 0;

  std::vector<RowPiece> row_;  // the row that is being filled
  std::uint64_t space_ = 0;    // left in it
  std::size_t first_ = 0;      // of long_ that gave the first chunk, if it is still there
  std::size_t turn_ = 0;
  std::vector<Piece> pieces_;
};

}  // namespace belay::data
