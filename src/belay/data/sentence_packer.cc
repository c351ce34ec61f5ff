#include "belay/data/sentence_packer.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "belay/base/check.h"

namespace belay::data {
namespace {

// Open at most, the larger of the first two and the third.
constexpr std::uint64_t kWindowTokens = std::uint64_t{1} << 21;
constexpr std::uint64_t kWindowRows = 1024;
constexpr std::size_t kWindowSections = std::size_t{1} << 16;
// A longer document is cut into sections of so many rows.
constexpr std::uint64_t kSectionRows = 16;
// Sections looked at when a chunk of the right length is wanted.
constexpr std::size_t kDonors = 256;
constexpr std::size_t kNone = ~std::size_t{0};

// End of the cuts at most `length` tokens behind the section's begin.
auto cuts_within(const auto& section, std::uint64_t length) {
  return std::upper_bound(section.cuts.begin() + static_cast<std::ptrdiff_t>(section.next),
                          section.cuts.end(), section.begin + length,
                          [](std::uint64_t at, const Cut& cut) { return at < cut.at; });
}

// The longest chunk of at most `length` tokens that ends at a cut; 0 if there is none.
std::uint64_t chunk_within(const auto& section, std::uint64_t length) {
  const auto end = cuts_within(section, length);
  const auto first = section.cuts.begin() + static_cast<std::ptrdiff_t>(section.next);
  return end == first ? 0 : std::prev(end)->at - section.begin;
}

}  // namespace

SentencePacker::SentencePacker(std::int64_t row_len, Emit emit)
    : row_len_(static_cast<std::uint64_t>(row_len)),
      tolerance_(row_len_ / 256),
      shortest_(row_len_ / 16),
      window_(std::max(kWindowTokens, kWindowRows * row_len_)),
      emit_(std::move(emit)) {
  BELAY_CHECK(row_len > 0);
}

void SentencePacker::append(std::uint64_t tokens, std::span<const Cut> cuts) {
  for (const Cut& cut : cuts) open_.cuts.push_back({position_ + cut.at, cut.paragraph});
  position_ += tokens;
  const std::uint64_t longest = kSectionRows * row_len_;
  while (position_ - open_.begin > longest) {
    const std::uint64_t chunk = chunk_within(open_, longest);
    close_section(open_.begin + (chunk > 0 ? chunk : longest));
  }
}

void SentencePacker::end_document() {
  if (position_ > open_.begin) close_section(position_);
  ++open_.document;
}

void SentencePacker::close_section(std::uint64_t end) {
  const auto behind =
      std::lower_bound(open_.cuts.begin(), open_.cuts.end(), end,
                       [](const Cut& cut, std::uint64_t at) { return cut.at < at; });
  Section section{.document = open_.document,
                  .begin = open_.begin,
                  .end = end,
                  .next = 0,
                  .cuts = {open_.cuts.begin(), behind}};
  const bool at_end = behind != open_.cuts.end() && behind->at == end;
  open_.cuts.erase(open_.cuts.begin(), at_end ? std::next(behind) : behind);
  open_.begin = end;
  keep(std::move(section));
  while (long_tokens_ + short_tokens_ > window_ || sections_ > kWindowSections) build_row();
}

void SentencePacker::keep(Section section) {
  const std::uint64_t length = section.length();
  ++sections_;
  if (length <= row_len_) {
    short_tokens_ += length;
    short_[length].push_back(std::move(section));
  } else {
    long_tokens_ += length;
    long_.push_back(std::move(section));
  }
}

void SentencePacker::finish() {
  BELAY_CHECK(open_.begin == position_);
  while (sections_ > 0) build_row();
}

void SentencePacker::build_row() {
  space_ = row_len_;
  first_ = kNone;
  // Long documents first, as the short ones that fit what they leave get fewer while others come.
  if (!long_.empty() && short_tokens_ <= window_ / 2) {
    // In turn: a document that only gives what fits elsewhere comes to a sentence that never does.
    first_ = turn_++ % std::min(kDonors, long_.size());
    take_long(first_, first_chunk(long_[first_]));
  } else if (!short_.empty()) {
    take_short(short_.rbegin()->first);
  }
  while (space_ > tolerance_ && fill()) {
  }
  emit_row();
}

// Where the first chunk of a row ends: near the row's end, better with a paragraph, and so that the
// rest can be filled, better without cutting another document.
std::uint64_t SentencePacker::first_chunk(const Section& section) const {
  struct Choice {
    bool cutting;
    bool paragraph;
    std::uint64_t least;
  };
  const std::array<Choice, 5> choices = {{{false, true, row_len_ - row_len_ / 8},
                                          {false, false, row_len_ - row_len_ / 4},
                                          {true, true, row_len_ - row_len_ / 8},
                                          {true, false, row_len_ - row_len_ / 4},
                                          {true, false, row_len_ / 2}}};
  const auto first = section.cuts.begin() + static_cast<std::ptrdiff_t>(section.next);
  const auto last = cuts_within(section, row_len_);
  if (first == last) return row_len_;  // one sentence
  for (const Choice& choice : choices) {
    for (auto cut = last; cut != first;) {
      --cut;
      const std::uint64_t length = cut->at - section.begin;
      if (length < choice.least) break;
      if (choice.paragraph && !cut->paragraph) continue;
      if (fillable(row_len_ - length, choice.cutting)) return length;
    }
  }
  return std::prev(last)->at - section.begin;
}

bool SentencePacker::fillable(std::uint64_t space, bool cutting) const {
  if (longest_short(space) + tolerance_ >= space) return true;
  return cutting && space >= shortest_ && longest_prefix(space).length + tolerance_ >= space;
}

bool SentencePacker::fill() {
  const std::uint64_t whole = longest_short(space_);
  const Prefix prefix = longest_prefix(space_);
  const bool exact = whole + tolerance_ >= space_;
  if (!exact && prefix.length > 0 && (whole == 0 || prefix.length + tolerance_ >= space_)) {
    take_long(prefix.section, prefix.length);
    return true;
  }
  if (whole == 0) return split_short();
  take_short(whole);
  return true;
}

std::uint64_t SentencePacker::longest_short(std::uint64_t space) const {
  const auto longer = short_.upper_bound(space);
  return longer == short_.begin() ? 0 : std::prev(longer)->first;
}

SentencePacker::Prefix SentencePacker::longest_prefix(std::uint64_t space) const {
  Prefix best;
  const std::size_t end = std::min(kDonors, long_.size());
  for (std::size_t i = 0; i < end && best.length < space; ++i) {
    if (i == first_) continue;  // what fits of it is in the row
    const std::uint64_t length = chunk_within(long_[i], space);
    if (length > best.length) best = {.section = i, .length = length};
  }
  return best;
}

// Every short document is longer than the space: cuts one of the longest.
bool SentencePacker::split_short() {
  std::uint64_t best = 0;
  std::uint64_t best_length = 0;
  std::size_t best_index = 0;
  std::size_t seen = 0;
  for (auto bucket = short_.rbegin(); bucket != short_.rend() && seen < kDonors; ++bucket) {
    for (std::size_t i = 0; i < bucket->second.size() && seen < kDonors; ++i, ++seen) {
      const std::uint64_t chunk = chunk_within(bucket->second[i], space_);
      if (chunk <= best) continue;
      best = chunk;
      best_length = bucket->first;
      best_index = i;
    }
  }
  if (best == 0) return false;
  const auto bucket = short_.find(best_length);
  std::swap(bucket->second[best_index], bucket->second.back());
  Section section = std::move(bucket->second.back());
  bucket->second.pop_back();
  if (bucket->second.empty()) short_.erase(bucket);
  short_tokens_ -= best_length;
  --sections_;
  take(section, best);
  keep(std::move(section));
  return true;
}

// Moves the section's first tokens into the row.
void SentencePacker::take(Section& section, std::uint64_t length) {
  row_.push_back({.document = section.document, .begin = section.begin, .length = length});
  section.begin += length;
  section.next = static_cast<std::size_t>(cuts_within(section, 0) - section.cuts.begin());
  space_ -= length;
}

void SentencePacker::take_long(std::size_t index, std::uint64_t length) {
  Section& section = long_[index];
  take(section, length);
  long_tokens_ -= length;
  if (section.length() > row_len_) return;
  long_tokens_ -= section.length();
  --sections_;
  if (index == first_) first_ = kNone;
  if (first_ != kNone && index < first_) --first_;
  Section rest = std::move(section);
  long_.erase(long_.begin() + static_cast<std::ptrdiff_t>(index));
  keep(std::move(rest));
}

void SentencePacker::take_short(std::uint64_t length) {
  const auto bucket = short_.find(length);
  take(bucket->second.back(), length);
  bucket->second.pop_back();
  if (bucket->second.empty()) short_.erase(bucket);
  short_tokens_ -= length;
  --sections_;
}

// In the order of the stream; chunks of a document that meet again are one.
void SentencePacker::emit_row() {
  std::sort(row_.begin(), row_.end(),
            [](const RowPiece& a, const RowPiece& b) { return a.begin < b.begin; });
  pieces_.clear();
  for (std::size_t i = 0; i < row_.size(); ++i) {
    const RowPiece& piece = row_[i];
    const auto length = static_cast<std::uint32_t>(piece.length);
    if (i > 0 && row_[i - 1].document == piece.document &&
        row_[i - 1].begin + row_[i - 1].length == piece.begin) {
      pieces_.back().length += length;
    } else {
      pieces_.push_back({.begin = piece.begin, .length = length});
    }
  }
  emit_(pieces_);
  row_.clear();
}

}  // namespace belay::data
