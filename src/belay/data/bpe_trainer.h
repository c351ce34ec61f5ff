#pragma once
// Trains a byte-level byte-pair vocabulary: feed documents, then finish() gives the tokenizer.json,
// which belay and Hugging Face's tokenizers both read.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "belay/data/tokenizer.h"
#include "belay/data/word_counter.h"

namespace belay::data {

struct BpeTrainerOptions {
  std::int32_t vocab_size = 8192;  // bytes, merges and special tokens together
  // They take the last ids, in this order; the first closes documents.
  std::vector<std::string> special_tokens = {"<|endoftext|>"};
  WordCounter::Limits limits{};  // beyond them the documents are sampled, see word_counter.h
};

class BpeTrainer {
 public:
  // Error(usage) unless vocab_size holds the 256 bytes and the special tokens, which must be
  // distinct and not empty.
  explicit BpeTrainer(BpeTrainerOptions options);
  // Not thread-safe; the result does not depend on the order of documents unless sampling set in.
  void feed(std::string_view document);
  // The tokenizer.json. Holds fewer tokens than asked for when the text has too few repeated pairs;
  // that is logged, as is sampling. Call once.
  std::string finish();

 private:
  BpeTrainerOptions options_;
  WordCounter counter_;
};

// Builds the tokenizer that a tokenizer.json text describes; `origin` is for messages.
std::unique_ptr<Tokenizer> tokenizer_from_json(std::string json, const std::string& origin);

}  // namespace belay::data
