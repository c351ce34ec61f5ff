#pragma once
// RowPacker: puts documents into rows of a fixed length so that short documents stay whole and
// little is padded (Ding et al., arXiv:2404.10830): longest first, each into the fullest row that
// has room. Lengths are looked at a window at a time, so memory does not grow with their number. A
// document longer than a row fills rows of its own; its rest is placed like a short document.

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "belay/data/store_format.h"

namespace belay::data {

class RowPacker {
 public:
  // `emit` receives each finished row.
  RowPacker(std::int64_t row_len, std::function<void(std::span<const Piece>)> emit);

  void add(std::uint64_t begin, std::uint64_t length);
  // Emits what is still held back.
  void finish() { place_window(); }

 private:
  void place_window();

  std::uint64_t row_len_;
  std::function<void(std::span<const Piece>)> emit_;
  std::vector<Piece> window_;
};

}  // namespace belay::data
