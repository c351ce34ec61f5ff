#include "belay/data/token_view.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>

#include "belay/base/check.h"

namespace belay::data {
namespace {

// Calls body(T{}) with the C++ type of `type`.
template <class Body>
auto with_type(TokenType type, Body&& body) {
  switch (type) {
    case TokenType::u8:
      return body(std::uint8_t{});
    case TokenType::i8:
      return body(std::int8_t{});
    case TokenType::i16:
      return body(std::int16_t{});
    case TokenType::u16:
      return body(std::uint16_t{});
    case TokenType::i32:
      return body(std::int32_t{});
    case TokenType::u32:
      return body(std::uint32_t{});
    case TokenType::i64:
      break;
  }
  return body(std::int64_t{});
}

template <class T>
T load(const std::byte* data, std::int64_t index) {
  T value;
  std::memcpy(&value, data + index * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return value;
}

// The maximum is taken over the type's own unsigned twin, where negative values come out on top, so
// that the loop stays narrow enough to vectorise.
template <class T>
std::uint64_t judged(std::make_unsigned_t<T> largest) {
  if (std::is_signed_v<T> && largest > static_cast<std::uint64_t>(std::numeric_limits<T>::max())) {
    return kNegativeId;
  }
  return largest;
}

}  // namespace

std::string_view name_of(TokenType type) {
  switch (type) {
    case TokenType::u8:
      return "u8";
    case TokenType::i8:
      return "i8";
    case TokenType::i16:
      return "i16";
    case TokenType::u16:
      return "u16";
    case TokenType::i32:
      return "i32";
    case TokenType::u32:
      return "u32";
    case TokenType::i64:
      break;
  }
  return "i64";
}

std::int64_t largest_id(TokenType type) {
  return with_type(type, [](auto zero) {
    const auto limit = static_cast<std::uint64_t>(std::numeric_limits<decltype(zero)>::max());
    return static_cast<std::int64_t>(
        std::min(limit, std::uint64_t{std::numeric_limits<std::int32_t>::max()}));
  });
}

std::uint64_t TokenView::read(std::int64_t begin, std::span<std::int32_t> out) const {
  BELAY_CHECK(begin >= 0 && begin + std::ssize(out) <= count);
  return with_type(type, [&](auto zero) {
    using T = decltype(zero);
    using Unsigned = std::make_unsigned_t<T>;
    const std::byte* from = data + begin * static_cast<std::int64_t>(sizeof(T));
    Unsigned top = 0;
    for (std::int64_t i = 0; i < std::ssize(out); ++i) {
      const T value = load<T>(from, i);
      top = std::max(top, static_cast<Unsigned>(value));
      out[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(value);
    }
    return judged<T>(top);
  });
}

std::uint64_t TokenView::largest(std::int64_t begin, std::int64_t end) const {
  BELAY_CHECK(begin >= 0 && begin <= end && end <= count);
  return with_type(type, [&](auto zero) {
    using T = decltype(zero);
    using Unsigned = std::make_unsigned_t<T>;
    Unsigned top = 0;
    for (std::int64_t i = begin; i < end; ++i) {
      top = std::max(top, static_cast<Unsigned>(load<T>(data, i)));
    }
    return judged<T>(top);
  });
}

std::int64_t TokenView::at(std::int64_t index) const {
  BELAY_CHECK(index >= 0 && index < count);
  return with_type(type, [&](auto zero) {
    return static_cast<std::int64_t>(load<decltype(zero)>(data, index));
  });
}

}  // namespace belay::data
