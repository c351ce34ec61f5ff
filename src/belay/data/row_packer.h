#pragma once
// RowPacker: puts documents into rows of a fixed length by best fit, so that short documents stay
// whole and little is padded (Ding et al., arXiv:2404.10830, there with all lengths known; here in
// one pass over a bounded number of open rows). A document longer than a row fills rows of its own;
// its rest is placed like a short document.

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "belay/data/store_format.h"

namespace belay::data {

class RowPacker {
 public:
  // `emit` receives each finished row.
  RowPacker(std::int64_t row_len, std::function<void(std::span<const Piece>)> emit);

  void add(std::uint64_t begin, std::uint64_t length);
  // Emits the open rows in the order in which they were opened.
  void finish();

 private:
  void close(std::uint64_t row);

  std::uint64_t row_len_;
  std::function<void(std::span<const Piece>)> emit_;
  struct Row {
    std::uint64_t space;
    std::vector<Piece> pieces;
  };
  std::map<std::uint64_t, Row> open_;                           // by number
  std::set<std::pair<std::uint64_t, std::uint64_t>> by_space_;  // (space, number)
  std::uint64_t next_row_ = 0;
};

}  // namespace belay::data
