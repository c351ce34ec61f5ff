#include "belay/data/byte_alphabet.h"

#include "belay/data/utf8.h"

namespace belay::data {

ByteAlphabet::ByteAlphabet() {
  byte_of_.fill(-1);
  std::uint32_t next = 0x100;
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    const bool itself = (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173);
    const std::uint32_t code = itself ? byte : next++;
    code_of_[byte] = code;
    byte_of_[code] = static_cast<std::int16_t>(byte);
  }
}

std::string ByteAlphabet::spell(std::string_view bytes) const {
  std::string spelling;
  spelling.reserve(bytes.size() * 2);
  for (const char byte : bytes) append_utf8(code_of_[static_cast<unsigned char>(byte)], spelling);
  return spelling;
}

std::optional<std::string> ByteAlphabet::bytes_of(std::string_view spelling) const {
  std::string bytes;
  bytes.reserve(spelling.size());
  for (std::size_t at = 0; at < spelling.size();) {
    const Character character = character_at(spelling, at);
    if (character.code >= kEnd || byte_of_[character.code] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(byte_of_[character.code]));
    at += character.length;
  }
  return bytes;
}

}  // namespace belay::data
