#include "belay/data/char_class.h"

#include <unicode/uchar.h>

#include <map>

namespace belay::data {
namespace {

CharClass classify(UChar32 code) {
  if (code == '\r' || code == '\n') return CharClass::newline;
  if (u_isUWhiteSpace(code) != 0) return CharClass::space;
  const std::uint32_t category = U_MASK(u_charType(code));
  if ((category & U_GC_L_MASK) != 0) return CharClass::letter;
  if ((category & U_GC_N_MASK) != 0) return CharClass::number;
  return CharClass::other;
}

}  // namespace

CharClasses::CharClasses() {
  std::map<std::array<CharClass, 128>, std::uint16_t> known;
  for (std::size_t block = 0; block < block_of_.size(); ++block) {
    std::array<CharClass, 128> content{};
    for (std::size_t i = 0; i < content.size(); ++i) {
      content[i] = classify(static_cast<UChar32>(block * 128 + i));
    }
    const auto next = static_cast<std::uint16_t>(known.size());
    const auto [entry, inserted] = known.emplace(content, next);
    if (inserted) blocks_.insert(blocks_.end(), content.begin(), content.end());
    block_of_[block] = entry->second;
  }
}

const CharClasses& char_classes() {
  static const CharClasses classes;
  return classes;
}

}  // namespace belay::data
