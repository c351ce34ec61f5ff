#pragma once
// The byte alphabet of GPT-2: tokenizer.json spells each byte as one printable character. Bytes
// 33..126, 161..172 and 174..255 stand for themselves, the others in rising order are U+0100 on.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace belay::data {

class ByteAlphabet {
 public:
  ByteAlphabet();
  // The UTF-8 spelling of `bytes`.
  [[nodiscard]] std::string spell(std::string_view bytes) const;
  // The bytes a spelling stands for; nothing if it holds other characters. Valid UTF-8 only.
  [[nodiscard]] std::optional<std::string> bytes_of(std::string_view spelling) const;

 private:
  static constexpr std::uint32_t kEnd = 0x144;
  std::array<std::uint32_t, 256> code_of_{};
  std::array<std::int16_t, kEnd> byte_of_{};  // -1: not in the alphabet
};

}  // namespace belay::data
