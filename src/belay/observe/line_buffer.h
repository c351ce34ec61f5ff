#pragma once
// Text put together in a fixed buffer: no heap. What does not fit is a programmer error.

#include <array>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "belay/base/check.h"

namespace belay {

template <std::size_t kCapacity>
class LineBuffer {
 public:
  void clear() { size_ = 0; }
  void append(std::string_view text) {
    BELAY_CHECK(text.size() <= kCapacity - size_);
    std::memcpy(bytes_.data() + size_, text.data(), text.size());
    size_ += text.size();
  }
  void append(std::int64_t value) {
    finish(std::to_chars(position(), bytes_.data() + kCapacity, value));
  }
  // Shortest text that reads back as the same double; the value must be finite.
  void append(double value) { finish(std::to_chars(position(), bytes_.data() + kCapacity, value)); }
  // With a fixed number of digits after the point.
  void append(double value, int digits) {
    finish(std::to_chars(position(), bytes_.data() + kCapacity, value, std::chars_format::fixed,
                         digits));
  }
  void append_scientific(double value, int digits) {
    finish(std::to_chars(position(), bytes_.data() + kCapacity, value,
                         std::chars_format::scientific, digits));
  }
  [[nodiscard]] std::string_view view() const { return {bytes_.data(), size_}; }
  [[nodiscard]] std::size_t size() const { return size_; }

 private:
  char* position() { return bytes_.data() + size_; }
  void finish(std::to_chars_result result) {
    BELAY_CHECK(result.ec == std::errc{});
    size_ = static_cast<std::size_t>(result.ptr - bytes_.data());
  }

  std::array<char, kCapacity> bytes_;
  std::size_t size_ = 0;
};

}  // namespace belay
