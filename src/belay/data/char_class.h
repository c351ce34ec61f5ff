#pragma once
// The classes of characters that the pre-tokenisation patterns of the GPT family distinguish.
// Classes come from ICU: \p{L}, \p{N}, and \s as Unicode White_Space.

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "belay/data/utf8.h"

namespace belay::data {

enum class CharClass : std::uint8_t {
  other,    // marks, punctuation, symbols, control characters
  letter,   // \p{L}
  number,   // \p{N}
  space,    // white space but not a line break
  newline,  // \r or \n
};

inline bool is_space(CharClass c) {
  return c == CharClass::space || c == CharClass::newline;
}

class CharClasses {
 public:
  CharClasses();

  [[nodiscard]] CharClass of(std::uint32_t code) const {
    return blocks_[std::size_t{block_of_[code >> 7]} * 128 + (code & 127U)];
  }

  // Class of the character at text[at] and its length; `text` is valid UTF-8.
  struct Classified {
    CharClass kind;
    std::uint32_t length;
  };
  [[nodiscard]] Classified at(std::string_view text, std::size_t at) const {
    const auto lead = static_cast<unsigned char>(text[at]);
    if (lead < 0x80) return {blocks_[lead], 1};
    const Character character = character_at(text, at);
    return {of(character.code), character.length};
  }

 private:
  // Equal blocks of 128 code points are stored once; block 0 is ASCII.
  std::array<std::uint16_t, 0x110000 / 128> block_of_{};
  std::vector<CharClass> blocks_;
};

// The one table, built on first use and constant from then on.
const CharClasses& char_classes();

}  // namespace belay::data
