#pragma once
// UTF-8 in running text: decoding of text known to be valid, and finding where text stops being so.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace belay::data {

struct Character {
  std::uint32_t code = 0;
  std::uint32_t length = 0;  // bytes
};

// The character at text[at]; `text` is valid UTF-8 and `at` a character boundary inside it.
inline Character character_at(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) {
    return static_cast<std::uint32_t>(static_cast<unsigned char>(text[at + i]));
  };
  const std::uint32_t lead = byte(0);
  if (lead < 0x80U) return {lead, 1};
  if (lead < 0xE0U) return {(lead & 0x1FU) << 6 | (byte(1) & 0x3FU), 2};
  if (lead < 0xF0U) {
    return {(lead & 0x0FU) << 12 | (byte(1) & 0x3FU) << 6 | (byte(2) & 0x3FU), 3};
  }
  return {
      (lead & 0x07U) << 18 | (byte(1) & 0x3FU) << 12 | (byte(2) & 0x3FU) << 6 | (byte(3) & 0x3FU),
      4};
}

// Start of the character that ends before text[at]; at > 0, `text` valid.
inline std::size_t previous_boundary(std::string_view text, std::size_t at) {
  do {
    --at;
  } while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80U);
  return at;
}

bool is_valid_utf8(std::string_view text);

// Length of the well-formed character at text[at], 0 if there is none (Unicode 15, table 3-7).
std::size_t valid_character_length(std::string_view text, std::size_t at);

void append_utf8(std::uint32_t code, std::string& out);

}  // namespace belay::data
