#pragma once
// Symbolic memory of one rank, for the checker.

#include <bit>
#include <cstdint>
#include <string>
#include <vector>

#include "belay/comm/schedule.h"

namespace belay::comm {

inline constexpr int kMostSymbolicRanks = 128;

// What an element holds.
struct Symbol {
  std::uint64_t ranks[2] = {0, 0};  // whose contributions
  std::uint64_t tree = 0;           // hash of the way in which they were added up
  std::int64_t element = -1;        // of the vector; -1: never written

  [[nodiscard]] int contributions() const {
    return std::popcount(ranks[0]) + std::popcount(ranks[1]);
  }
  static Symbol leaf(int rank, std::int64_t element);
};

// first op second. False if they are different elements or share a contribution.
bool add_up(const Symbol& first, const Symbol& second, Symbol& sum);
// The hash of the order-stable sum over ranks [first, last).
std::uint64_t stable_tree(int first, int last);

// When a step runs, as far as order is concerned.
struct Moment {
  int lane = 0;
  std::int64_t round = 0;
  std::int64_t step = 0;  // unique on the rank
};

class SymbolicMemory {
 public:
  // Sizes in elements; with `shared`, buffers share memory where they may.
  SymbolicMemory(const Schedule& schedule, int rank, bool shared);

  // Whether [offset, offset + count) lies in the buffer.
  [[nodiscard]] bool contains(Place place, std::int64_t count) const;
  // Index of a place in the memory, to compare addresses.
  [[nodiscard]] std::int64_t address(Place place) const {
    return starts_[static_cast<std::size_t>(place.buffer)] + place.offset;
  }
  // Reads or writes one element; false if another step, not ordered with this one, conflicts.
  bool read(std::int64_t address, const Moment& moment, Symbol& symbol);
  bool write(std::int64_t address, const Moment& moment, const Symbol& symbol);
  [[nodiscard]] const Symbol& at(std::int64_t address) const {
    return cells_[static_cast<std::size_t>(address)].symbol;
  }

 private:
  static constexpr std::int64_t kNone = -1;
  static constexpr std::int64_t kSeveral = -2;
  // Who touched a cell: which lanes ever, and which steps in the last round that did.
  struct Access {
    std::int64_t lane = kNone;
    std::int64_t round = kNone;
    std::int64_t step = kNone;

    void note(const Moment& moment);
    [[nodiscard]] bool conflicts(const Moment& moment) const;
  };
  struct Cell {
    Symbol symbol;
    Access reads;
    Access writes;
  };

  std::int64_t starts_[4] = {0, 0, 0, 0};
  std::int64_t sizes_[4] = {0, 0, 0, 0};
  std::vector<Cell> cells_;
};

}  // namespace belay::comm
