#include "belay/data/packing_figures.h"

namespace belay::data {

// Looks at the row ends in (begin, end]; cuts count from begin.
void PackingCounter::Edges::pass(std::uint64_t row_len, std::uint64_t begin, std::uint64_t end,
                                 std::span<const Cut> cuts) {
  cut = cut || at_edge;
  at_edge = false;
  std::size_t next = 0;
  const std::uint64_t passed = (begin - origin) / row_len;
  for (std::uint64_t edge = origin + (passed + 1) * row_len; edge <= end && !cut; edge += row_len) {
    while (next < cuts.size() && begin + cuts[next].at < edge) ++next;
    const bool between = next < cuts.size() && begin + cuts[next].at == edge;
    if (edge == end) {
      at_edge = !between;
    } else {
      cut = !between;
    }
  }
}

void PackingCounter::append(std::uint64_t tokens, std::span<const Cut> cuts) {
  if (tokens == 0) return;
  const std::uint64_t end = position_ + tokens;
  concat_.pass(row_len_, position_, end, cuts);
  alone_.pass(row_len_, position_, end, cuts);
  for (const Cut& cut : cuts) {
    const std::uint64_t at = position_ + cut.at;
    long_sentence_ = long_sentence_ || at - last_cut_ > row_len_;
    last_cut_ = at;
  }
  position_ = end;
}

void PackingCounter::end_document() {
  if (position_ == begin_) return;
  long_sentence_ = long_sentence_ || position_ - last_cut_ > row_len_;
  rows_ += (position_ - begin_ + row_len_ - 1) / row_len_;
  cut_.concat += concat_.cut ? 1 : 0;
  cut_.document_per_row += alone_.cut ? 1 : 0;
  cut_.sentences += long_sentence_ ? 1 : 0;
  begin_ = last_cut_ = position_;
  long_sentence_ = false;
  concat_.cut = concat_.at_edge = false;
  alone_ = {.origin = position_};
}

}  // namespace belay::data
