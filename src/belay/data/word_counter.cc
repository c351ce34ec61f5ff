#include "belay/data/word_counter.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>

#include "belay/data/utf8.h"

namespace belay::data {
namespace {

constexpr std::size_t kSlice = std::size_t{1} << 20;  // unit of sampling for long documents
// Longer words are counted in pieces; a token never gets that long.
constexpr std::size_t kLongestWord = 256;
constexpr std::uint64_t kSampleKey = 0x62656C6179ULL;

std::uint64_t hash_of(std::string_view text, std::uint64_t seed = 0) {
  return XXH3_64bits_withSeed(text.data(), text.size(), seed);
}

// Moves `at` back to the start of a character.
std::size_t boundary(std::string_view text, std::size_t at) {
  for (int i = 0; i < 3 && at > 0 && at < text.size(); ++i, --at) {
    if ((static_cast<unsigned char>(text[at]) & 0xC0U) != 0x80U) break;
  }
  return at;
}

}  // namespace

WordCounter::WordCounter(std::unique_ptr<WordSplitter> splitter, Limits limits)
    : splitter_(std::move(splitter)), limits_(limits), slots_(std::size_t{1} << 16, 0) {}

void WordCounter::feed(std::string_view document) {
  bytes_fed_ += static_cast<std::int64_t>(document.size());
  while (!document.empty()) {
    std::size_t length = document.size();
    if (length > kSlice) {
      const std::size_t line = document.rfind('\n', kSlice - 1);
      length = line != std::string_view::npos && line > kSlice / 2 ? line + 1
                                                                   : boundary(document, kSlice);
    }
    feed_slice(document.substr(0, length));
    document.remove_prefix(length);
  }
}

void WordCounter::feed_slice(std::string_view slice) {
  const std::uint64_t number = slices_++;
  const std::uint64_t coin = XXH3_64bits_withSeed(&number, sizeof number, kSampleKey);
  if ((coin & ((std::uint64_t{1} << halvings_) - 1)) != 0) return;
  const auto count_word = [&](std::string_view word) {
    while (word.size() > kLongestWord) {
      const std::size_t length = boundary(word, kLongestWord);
      add(word.substr(0, length), 1);
      word.remove_prefix(length);
    }
    add(word, 1);
  };
  if (is_valid_utf8(slice)) {
    splitter_->split(slice, count_word);
  } else {
    std::size_t start = 0;
    std::size_t at = 0;
    while (at < slice.size()) {
      const std::size_t length = valid_character_length(slice, at);
      if (length == 0) {
        if (at > start) splitter_->split(slice.substr(start, at - start), count_word);
        start = at + 1;
      }
      at += std::max<std::size_t>(length, 1);
    }
    if (at > start) splitter_->split(slice.substr(start, at - start), count_word);
  }
  while (text_.size() > limits_.bytes || entries_.size() > limits_.words) halve();
}

void WordCounter::add(std::string_view word, std::int64_t count) {
  const std::size_t mask = slots_.size() - 1;
  std::size_t slot = hash_of(word) & mask;
  while (slots_[slot] != 0) {
    Entry& entry = entries_[slots_[slot] - 1];
    if (text_of(entry) == word) {
      entry.count += count;
      return;
    }
    slot = (slot + 1) & mask;
  }
  entries_.push_back(
      {static_cast<std::uint32_t>(text_.size()), static_cast<std::uint32_t>(word.size()), count});
  text_.append(word);
  slots_[slot] = static_cast<std::uint32_t>(entries_.size());
  if (entries_.size() * 2 > slots_.size()) rehash(slots_.size() * 2);
}

void WordCounter::halve() {
  ++halvings_;
  std::vector<Entry> kept;
  std::string text;
  for (const Entry& entry : entries_) {
    const std::string_view word = text_of(entry);
    const std::uint64_t coin = hash_of(word, kSampleKey + static_cast<std::uint64_t>(halvings_));
    const std::int64_t count = entry.count / 2 + (entry.count % 2 != 0 && (coin & 1U) != 0 ? 1 : 0);
    if (count == 0) continue;
    kept.push_back({static_cast<std::uint32_t>(text.size()), entry.length, count});
    text.append(word);
  }
  entries_ = std::move(kept);
  text_ = std::move(text);
  rehash(slots_.size());
}

void WordCounter::rehash(std::size_t slots) {
  slots_.assign(slots, 0);
  const std::size_t mask = slots - 1;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    std::size_t slot = hash_of(text_of(entries_[i])) & mask;
    while (slots_[slot] != 0) slot = (slot + 1) & mask;
    slots_[slot] = static_cast<std::uint32_t>(i + 1);
  }
}

std::vector<WordCounter::Word> WordCounter::words() const {
  std::vector<Word> result;
  result.reserve(entries_.size());
  for (const Entry& entry : entries_) result.push_back({text_of(entry), entry.count});
  std::sort(result.begin(), result.end(),
            [](const Word& a, const Word& b) { return a.text < b.text; });
  return result;
}

}  // namespace belay::data
