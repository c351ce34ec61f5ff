#include "belay/comm/known_values.h"

#include <algorithm>

#include "belay/comm/element_values.h"

namespace belay::comm {
namespace {

int value_of(int rank, std::int64_t i) {
  return static_cast<int>((rank + i) % 4);
}

}  // namespace

KnownValues::KnownValues(Collective collective, DType dtype, std::int64_t count, int rank,
                         int ranks)
    : collective_(collective),
      dtype_(dtype),
      count_(count),
      rank_(rank),
      ranks_(ranks),
      blocks_(Blocks::even(0, count, ranks)) {}

void KnownValues::fill_input(void* input) const {
  const std::int64_t begin = collective_ == Collective::all_gather ? blocks_.begin(rank_) : 0;
  for (std::int64_t i = 0; i < count_; ++i) set(input, dtype_, i, value_of(rank_, begin + i));
}

void KnownValues::fill_output(void* output, bool in_place) const {
  for (std::int64_t i = 0; i < count_; ++i) {
    set(output, dtype_, i, in_place ? value_of(rank_, i) : -1);
  }
}

int KnownValues::sum(std::int64_t i) const {
  int total = 0;
  for (int other = 0; other < ranks_; ++other) total += value_of(other, i);
  return total;
}

std::int64_t KnownValues::wrong(const void* output) const {
  std::int64_t wrong = 0;
  const auto expect = [&](std::int64_t i, int value) {
    if (get(output, dtype_, i) != value) ++wrong;
  };
  const std::int64_t block = std::max<std::int64_t>(count_ / ranks_, 1);
  switch (collective_) {
    case Collective::all_reduce:
      for (std::int64_t i = 0; i < count_; ++i) expect(i, sum(i));
      break;
    case Collective::reduce:
      for (std::int64_t i = 0; rank_ == 0 && i < count_; ++i) expect(i, sum(i));
      break;
    case Collective::reduce_scatter:
      for (std::int64_t i = 0; i < blocks_.count(rank_); ++i) {
        expect(i, sum(blocks_.begin(rank_) + i));
      }
      break;
    case Collective::all_gather:
      for (int owner = 0; owner < ranks_; ++owner) {
        for (std::int64_t i = blocks_.begin(owner); i < blocks_.end(owner); ++i) {
          expect(i, value_of(owner, i));
        }
      }
      break;
    case Collective::broadcast:
      for (std::int64_t i = 0; i < count_; ++i) expect(i, value_of(0, i));
      break;
    case Collective::all_to_all:
      for (std::int64_t i = 0; i < count_; ++i) {
        expect(i, value_of(static_cast<int>(i / block), rank_ * block + i % block));
      }
      break;
    case Collective::barrier:
      break;
  }
  return wrong;
}

}  // namespace belay::comm
