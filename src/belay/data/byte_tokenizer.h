#pragma once
// The simplest tokenizer: ids 0..255 are the bytes, 256 ends a document. Needs no file and no
// training; sequences are three to four times as long as with a trained vocabulary.

#include "belay/data/tokenizer.h"

namespace belay::data {

class ByteTokenizer final : public Tokenizer {
 public:
  static constexpr std::int32_t kEndOfDocument = 256;

  [[nodiscard]] std::int32_t vocab_size() const override { return kEndOfDocument + 1; }
  void encode(std::string_view text, std::vector<std::int32_t>& ids,
              SpecialText special) const override;
  [[nodiscard]] std::string decode(std::span<const std::int32_t> ids) const override;
  [[nodiscard]] std::string token_bytes(std::int32_t id) const override;
  [[nodiscard]] std::optional<std::int32_t> end_of_document() const override {
    return kEndOfDocument;
  }
  [[nodiscard]] bool is_special(std::int32_t id) const override { return id == kEndOfDocument; }
  // No text denotes the end of a document here, so no text can be mistaken for it.
  [[nodiscard]] std::int64_t count_special_text(std::string_view) const override { return 0; }
  [[nodiscard]] std::string file_name() const override { return "tokenizer.bytes.json"; }
  void save(const std::string& path) const override;
};

}  // namespace belay::data
