#pragma once
// DocumentPacker: short documents stay whole and little is padded (Ding et al., arXiv:2404.10830):
// longest first, each into the fullest row that has room. Lengths are looked at a window at a time.
// A document longer than a row fills rows of its own; its rest is placed like a short document.

#include <vector>

#include "belay/data/row_packer.h"

namespace belay::data {

class DocumentPacker final : public RowPacker {
 public:
  DocumentPacker(std::int64_t row_len, Emit emit);

  void append(std::uint64_t tokens, std::span<const Cut> cuts) override;
  void end_document() override;
  void finish() override { place_window(); }

 private:
  void place_window();

  std::uint64_t row_len_;
  Emit emit_;
  std::uint64_t begin_ = 0;  // of the open document's part that is in no row yet
  std::uint64_t end_ = 0;
  std::vector<Piece> window_;
};

}  // namespace belay::data
