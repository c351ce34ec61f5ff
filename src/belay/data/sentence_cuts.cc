#include "belay/data/sentence_cuts.h"

namespace belay::data {

TokenTexts::TokenTexts(const Tokenizer& tokenizer) {
  starts_.push_back(0);
  for (std::int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (!tokenizer.is_special(id)) bytes_ += tokenizer.token_bytes(id);
    starts_.push_back(bytes_.size());
  }
}

void SentenceCutter::find(const TokenTexts& texts, std::span<const std::int32_t> ids,
                          std::vector<Cut>& cuts) {
  text_.clear();
  for (const std::int32_t id : ids) text_ += texts.at(id);
  splitter_.split(text_, ends_);
  std::size_t token = 0;  // tokens passed, and the bytes they stand for
  std::size_t offset = 0;
  std::size_t last = 0;
  for (const SentenceEnd& end : ends_) {
    while (token < ids.size() && offset + texts.at(ids[token]).size() <= end.end) {
      offset += texts.at(ids[token]).size();
      ++token;
    }
    if (offset < end.text_end || token == last) continue;
    cuts.push_back({.at = token, .paragraph = end.paragraph});
    last = token;
  }
}

}  // namespace belay::data
