#include "belay/comm/symbols.h"

#include <algorithm>

namespace belay::comm {
namespace {

std::uint64_t mix(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9U;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebU;
  return value ^ (value >> 31);
}

std::uint64_t leaf_tree(int rank) {
  return mix(static_cast<std::uint64_t>(rank) + 0x9e3779b97f4a7c15U);
}

std::uint64_t join_trees(std::uint64_t first, std::uint64_t second) {
  return mix(first * 0x9e3779b97f4a7c15U + std::rotl(second, 23));
}

constexpr std::size_t index_of(Buffer buffer) {
  return static_cast<std::size_t>(buffer);
}

}  // namespace

Symbol Symbol::leaf(int rank, std::int64_t element) {
  Symbol symbol;
  symbol.ranks[rank / 64] = std::uint64_t{1} << (rank % 64);
  symbol.tree = leaf_tree(rank);
  symbol.element = element;
  return symbol;
}

bool add_up(const Symbol& first, const Symbol& second, Symbol& sum) {
  if (first.element != second.element) return false;
  if ((first.ranks[0] & second.ranks[0]) != 0 || (first.ranks[1] & second.ranks[1]) != 0) {
    return false;
  }
  const Symbol result{{first.ranks[0] | second.ranks[0], first.ranks[1] | second.ranks[1]},
                      join_trees(first.tree, second.tree),
                      first.element};
  sum = result;
  return true;
}

std::uint64_t stable_tree(int first, int last) {
  if (last - first == 1) return leaf_tree(first);
  const int middle =
      first + static_cast<int>(std::bit_floor(static_cast<unsigned>(last - first - 1)));
  return join_trees(stable_tree(first, middle), stable_tree(middle, last));
}

SymbolicMemory::SymbolicMemory(const Schedule& schedule, int rank, bool shared) {
  const std::int64_t all = schedule.count();
  const std::int64_t own = schedule.blocks.count(rank);
  std::int64_t in = all;
  std::int64_t out = all;
  // Where output lies within input, or input within output.
  std::int64_t in_at = 0;
  std::int64_t out_at = 0;
  bool work_in_output = false;
  switch (schedule.collective) {
    case Collective::all_reduce:
      work_in_output = true;
      break;
    case Collective::reduce_scatter:
      out = own;
      out_at = schedule.blocks.begin(rank);
      break;
    case Collective::all_gather:
      in = own;
      in_at = schedule.blocks.begin(rank);
      break;
    case Collective::broadcast:
      if (rank != schedule.root) in = 0;
      break;
    case Collective::reduce:
      if (rank != schedule.root) out = 0;
      break;
    case Collective::all_to_all:
      shared = false;
      break;
    case Collective::barrier:
      in = out = 0;
      break;
  }
  const std::int64_t work = reduces(schedule.collective) ? all : 0;
  sizes_[index_of(Buffer::input)] = in;
  sizes_[index_of(Buffer::output)] = out;
  sizes_[index_of(Buffer::work)] = work;
  sizes_[index_of(Buffer::spare)] = schedule.spare;
  std::int64_t next = 0;
  if (shared) {
    starts_[index_of(Buffer::input)] = in_at;
    starts_[index_of(Buffer::output)] = out_at;
    next = std::max(in_at + in, out_at + out);
  } else {
    starts_[index_of(Buffer::output)] = in;
    next = in + out;
  }
  if (shared && work_in_output) {
    starts_[index_of(Buffer::work)] = starts_[index_of(Buffer::output)];
  } else {
    starts_[index_of(Buffer::work)] = next;
    next += work;
  }
  starts_[index_of(Buffer::spare)] = next;
  cells_.resize(static_cast<std::size_t>(next + schedule.spare));
  for (std::int64_t i = 0; i < in; ++i) {
    const std::int64_t element =
        schedule.collective == Collective::all_gather ? schedule.blocks.begin(rank) + i : i;
    const auto cell = static_cast<std::size_t>(starts_[index_of(Buffer::input)] + i);
    cells_[cell].symbol = Symbol::leaf(rank, element);
  }
}

bool SymbolicMemory::contains(Place place, std::int64_t count) const {
  return place.offset >= 0 && count >= 0 && place.offset + count <= sizes_[index_of(place.buffer)];
}

void SymbolicMemory::Access::note(const Moment& moment) {
  const bool same_round = lane == moment.lane && round == moment.round;
  step = same_round && step != moment.step ? kSeveral : moment.step;
  lane = lane == kNone || lane == moment.lane ? moment.lane : kSeveral;
  round = moment.round;
}

bool SymbolicMemory::Access::conflicts(const Moment& moment) const {
  if (lane == kNone) return false;
  if (lane != moment.lane) return true;
  return round == moment.round && step != moment.step;
}

bool SymbolicMemory::read(std::int64_t address, const Moment& moment, Symbol& symbol) {
  Cell& cell = cells_[static_cast<std::size_t>(address)];
  if (cell.writes.conflicts(moment)) return false;
  cell.reads.note(moment);
  symbol = cell.symbol;
  return true;
}

bool SymbolicMemory::write(std::int64_t address, const Moment& moment, const Symbol& symbol) {
  Cell& cell = cells_[static_cast<std::size_t>(address)];
  if (cell.writes.conflicts(moment) || cell.reads.conflicts(moment)) return false;
  cell.writes.note(moment);
  cell.symbol = symbol;
  return true;
}

}  // namespace belay::comm
