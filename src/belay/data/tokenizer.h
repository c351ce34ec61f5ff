#pragma once
// Tokenizer: text to ids and back. Implementations: the bytes themselves, byte-pair encoding read
// from a Hugging Face tokenizer.json, and sentencepiece models. All const members may be called
// from many threads at once.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace belay::data {

// What to do with text that reads like a special token, "<|endoftext|>" say. User data must not be
// able to end a document or to speak as another party, hence `ordinary` is the default. (Added
// tokens that their tokenizer.json does not call special are plain vocabulary: always matched.)
enum class SpecialText : std::uint8_t {
  ordinary,  // encoded like any other text
  map,       // becomes the special token's id
};

class Tokenizer {
 public:
  Tokenizer() = default;
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;
  virtual ~Tokenizer() = default;

  // Every id is in [0, vocab_size()).
  [[nodiscard]] virtual std::int32_t vocab_size() const = 0;

  // Appends the ids of `text`, which may hold any bytes. Byte-level tokenizers without a normalizer
  // are lossless: decode(encode(x)) == x, invalid UTF-8 included. Never adds begin or end ids.
  virtual void encode(std::string_view text, std::vector<std::int32_t>& ids,
                      SpecialText special = SpecialText::ordinary) const = 0;

  // Text of the ids; special tokens give their own text, if any. Error(data) for an id out of
  // range.
  [[nodiscard]] virtual std::string decode(std::span<const std::int32_t> ids) const = 0;

  // Bytes that one id contributes to running text, for streaming; may end inside a UTF-8 sequence.
  // Joined over ids they equal decode(), except for spaces that tokenizers of the sentencepiece
  // kind drop at the start of the text.
  [[nodiscard]] virtual std::string token_bytes(std::int32_t id) const = 0;

  // The id that closes a document, if the tokenizer has one; likewise the id that opens one and the
  // id that pads.
  [[nodiscard]] virtual std::optional<std::int32_t> end_of_document() const = 0;
  [[nodiscard]] virtual std::optional<std::int32_t> begin_of_document() const { return {}; }
  [[nodiscard]] virtual std::optional<std::int32_t> padding() const { return {}; }

  // True for ids that stand for control marks, not for text.
  [[nodiscard]] virtual bool is_special(std::int32_t id) const = 0;

  // Occurrences of special-token text in `text` (longest match, not overlapping).
  [[nodiscard]] virtual std::int64_t count_special_text(std::string_view text) const = 0;

  // Name under which save() writes into a run directory: "tokenizer.json", "tokenizer.model" or
  // "tokenizer.bytes.json".
  [[nodiscard]] virtual std::string file_name() const = 0;

  // Writes one self-contained file that load_tokenizer() reads back to an equal tokenizer.
  virtual void save(const std::string& path) const = 0;
};

// `spec`: "bytes", a tokenizer.json, a sentencepiece *.model, or a directory that holds one of the
// files above. Error(data) names what is missing or unsupported.
std::unique_ptr<Tokenizer> load_tokenizer(const std::string& spec);

}  // namespace belay::data
