#pragma once
// Counts the words of a stream of documents in bounded memory. When the distinct words outgrow the
// limit, every count is halved (odd ones rounded by a keyed coin) and from then on only half as
// many documents are counted, so that the table stays a uniform sample of all that was fed.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "belay/data/word_splitter.h"

namespace belay::data {

class WordCounter {
 public:
  struct Limits {
    std::size_t bytes = std::size_t{32} << 20;  // of distinct words
    std::size_t words = std::size_t{4} << 20;
  };
  WordCounter(std::unique_ptr<WordSplitter> splitter, Limits limits);

  // Counts the words of one document; bytes that are not UTF-8 are left out.
  void feed(std::string_view document);

  struct Word {
    std::string_view text;  // valid until the next feed()
    std::int64_t count;
  };
  // All words, sorted by text: the order of feeding does not show.
  [[nodiscard]] std::vector<Word> words() const;
  [[nodiscard]] std::int64_t bytes_fed() const { return bytes_fed_; }
  // One document (or slice of a long one) in 2^halvings() is counted.
  [[nodiscard]] int halvings() const { return halvings_; }

 private:
  struct Entry {
    std::uint32_t begin;
    std::uint32_t length;
    std::int64_t count;
  };
  void feed_slice(std::string_view slice);
  void add(std::string_view word, std::int64_t count);
  void halve();
  void rehash(std::size_t slots);
  [[nodiscard]] std::string_view text_of(const Entry& entry) const {
    return std::string_view(text_).substr(entry.begin, entry.length);
  }

  std::unique_ptr<WordSplitter> splitter_;
  Limits limits_;
  std::string text_;  // the distinct words, one after the other
  std::vector<Entry> entries_;
  std::vector<std::uint32_t> slots_;  // index + 1 into entries_, 0: free
  std::int64_t bytes_fed_ = 0;
  std::uint64_t slices_ = 0;
  int halvings_ = 0;
};

}  // namespace belay::data
