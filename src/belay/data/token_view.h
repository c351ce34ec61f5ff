#pragma once
// TokenView: token ids as they lie in a file, of whatever integer width the file has, read out as
// i32. It owns nothing; the bytes need not be aligned to the element.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace belay::data {

enum class TokenType : std::uint8_t { u8, i8, i16, u16, i32, u32, i64 };

constexpr std::int64_t width_of(TokenType type) {
  switch (type) {
    case TokenType::u8:
    case TokenType::i8:
      return 1;
    case TokenType::i16:
    case TokenType::u16:
      return 2;
    case TokenType::i32:
    case TokenType::u32:
      return 4;
    case TokenType::i64:
      return 8;
  }
  return 0;
}

std::string_view name_of(TokenType type);  // "u16", ...

// Largest id that the type can hold, no more than i32 can: what a model can be fed with.
std::int64_t largest_id(TokenType type);

// What TokenView::read returns for a negative id: larger than any id.
inline constexpr std::uint64_t kNegativeId = ~std::uint64_t{0};

struct TokenView {
  const std::byte* data = nullptr;
  std::int64_t count = 0;
  TokenType type = TokenType::u16;

  // Copies ids [begin, begin + out.size()), which must lie in [0, count), and returns the largest.
  // Ids that do not fit i32 are cut in `out`, hence compare the result with a limit first.
  std::uint64_t read(std::int64_t begin, std::span<std::int32_t> out) const;
  // Largest id of [begin, end) without copying; 0 for an empty range.
  [[nodiscard]] std::uint64_t largest(std::int64_t begin, std::int64_t end) const;
  // One id, sign kept.
  [[nodiscard]] std::int64_t at(std::int64_t index) const;
};

}  // namespace belay::data
