#pragma once
// Byte-pair encoding as Hugging Face's tokenizer.json describes it: byte-level (GPT-2, Qwen,
// Llama-3) and character-level with byte fallback (Llama-2, Mistral).

#include <array>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "belay/data/added_tokens.h"
#include "belay/data/bpe_merges.h"
#include "belay/data/normalizer.h"
#include "belay/data/tokenizer.h"
#include "belay/data/word_splitter.h"

namespace belay::data {

struct TextHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const {
    return std::hash<std::string_view>{}(text);
  }
};
using VocabMap = std::unordered_map<std::string, std::int32_t, TextHash, std::equal_to<>>;

// Everything a BpeTokenizer needs to know; made by read_tokenizer_json().
struct BpeDefinition {
  std::string source;  // the JSON text itself, what save() writes
  std::string origin;  // where it came from, for messages

  bool byte_level = true;
  // What an id stands for: bytes if byte_level, else text; empty for ids without a token.
  std::vector<std::string> tokens;
  VocabMap vocab;  // model vocabulary only, by the same texts
  std::vector<MergeTable::Merge> merges;
  std::vector<AddedToken> added;
  bool ignore_merges = false;  // a word that is a token is that token, whatever the merges say

  // Character level: what becomes of a character that is no token.
  std::array<std::int32_t, 256> byte_ids{};  // -1 where there is none
  std::optional<std::int32_t> unknown;
  bool fuse_unknown = false;
  bool byte_fallback = false;

  std::string prepend;                     // put in front of each text before normalisation
  std::string prefix;                      // and after it, unless the text begins so
  bool prefix_first = false;               // only in front of the text as a whole
  std::unique_ptr<Normalizer> normalizer;  // may be null
  std::unique_ptr<WordSplitter> splitter;

  // Decoding, character level: replaced in each token; spaces dropped from the front of the text.
  std::vector<std::pair<std::string, std::string>> decode_replace;
  int decode_strip = 0;
};

// Error(data) naming what is wrong or unsupported. `origin` is the path, for messages.
BpeDefinition read_tokenizer_json(std::string json, const std::string& origin);

class BpeTokenizer final : public Tokenizer {
 public:
  explicit BpeTokenizer(BpeDefinition definition);
  ~BpeTokenizer() override;

  [[nodiscard]] std::int32_t vocab_size() const override;
  void encode(std::string_view text, std::vector<std::int32_t>& ids,
              SpecialText special = SpecialText::ordinary) const override;
  [[nodiscard]] std::string decode(std::span<const std::int32_t> ids) const override;
  [[nodiscard]] std::string token_bytes(std::int32_t id) const override;
  [[nodiscard]] std::optional<std::int32_t> end_of_document() const override { return end_; }
  [[nodiscard]] std::optional<std::int32_t> begin_of_document() const override { return begin_; }
  [[nodiscard]] std::optional<std::int32_t> padding() const override { return padding_; }
  [[nodiscard]] bool is_special(std::int32_t id) const override;
  [[nodiscard]] std::int64_t count_special_text(std::string_view text) const override;
  [[nodiscard]] std::string file_name() const override { return "tokenizer.json"; }
  void save(const std::string& path) const override;

 private:
  struct Scratch;
  class Loan;  // a Scratch taken from the pool for one call
  enum class Place { start, after_token, inside };

  void prepare_texts();
  void encode_raw(std::string_view text, SpecialText special, Place place, Scratch& scratch,
                  std::vector<std::int32_t>& ids) const;
  void encode_valid(std::string_view text, SpecialText special, Place place, Scratch& scratch,
                    std::vector<std::int32_t>& ids) const;
  void encode_words(std::string_view text, Place place, Scratch& scratch,
                    std::vector<std::int32_t>& ids) const;
  void encode_word(std::string_view word, Scratch& scratch, std::vector<std::int32_t>& ids) const;
  void merge_word(std::string_view word, Scratch& scratch) const;
  void append_byte(unsigned char byte, std::vector<std::int32_t>& ids) const;
  // Text of an id; points into the definition.
  [[nodiscard]] std::string_view text_at(std::int32_t id) const;
  [[nodiscard]] std::optional<std::int32_t> find_special(
      std::initializer_list<std::string_view> names) const;

  BpeDefinition def_;
  MergeTable merges_;
  // Finders by stage (0: raw text, 1: normalised text) and by whether special tokens count.
  std::array<TokenFinder, 2> plain_finders_;
  std::array<TokenFinder, 2> all_finders_;
  TokenFinder special_finder_;
  std::vector<bool> special_;
  std::optional<std::int32_t> end_;
  std::optional<std::int32_t> begin_;
  std::optional<std::int32_t> padding_;

  mutable std::mutex pool_mutex_;
  mutable std::vector<std::unique_ptr<Scratch>> pool_;
};

}  // namespace belay::data
