#pragma once
// Where documents may be cut between tokens without dividing a sentence. Sentences are looked for
// in the text that the ids stand for, so any tokenizer will do and the ids stay what they are.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "belay/data/sentence_splitter.h"
#include "belay/data/tokenizer.h"

namespace belay::data {

// A place between two tokens of a document.
struct Cut {
  std::uint64_t at = 0;    // tokens before it
  bool paragraph = false;  // a line ends here, not only a sentence
};

// What each id of a tokenizer contributes to running text; special tokens contribute nothing.
class TokenTexts {
 public:
  explicit TokenTexts(const Tokenizer& tokenizer);
  // Empty for what is no id of the tokenizer.
  [[nodiscard]] std::string_view at(std::int32_t id) const {
    const auto index = static_cast<std::size_t>(id);
    if (id < 0 || index + 1 >= starts_.size()) return {};
    return std::string_view(bytes_).substr(starts_[index], starts_[index + 1] - starts_[index]);
  }

 private:
  std::string bytes_;
  std::vector<std::size_t> starts_;
};

class SentenceCutter {
 public:
  // Appends the cuts inside and at the end of `ids`, rising, 0 < at <= ids.size(). A sentence end
  // in the middle of a token gives none.
  void find(const TokenTexts& texts, std::span<const std::int32_t> ids, std::vector<Cut>& cuts);

 private:
  SentenceSplitter splitter_;
  std::string text_;
  std::vector<SentenceEnd> ends_;
};

}  // namespace belay::data
