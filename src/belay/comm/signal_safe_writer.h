#pragma once
// Text to a file without anything that a signal handler may not do.

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace belay::comm {

class SignalSafeWriter {
 public:
  explicit SignalSafeWriter(int file) : file_(file) {}

  SignalSafeWriter& text(std::string_view text) {
    while (!text.empty()) {
      if (used_ == buffer_.size()) flush();
      const std::size_t part = std::min(text.size(), buffer_.size() - used_);
      std::memcpy(buffer_.data() + used_, text.data(), part);
      used_ += part;
      text.remove_prefix(part);
    }
    return *this;
  }

  SignalSafeWriter& number(std::int64_t value) {
    std::array<char, 20> digits{};
    std::size_t at = digits.size();
    auto rest =
        value < 0 ? ~static_cast<std::uint64_t>(value) + 1 : static_cast<std::uint64_t>(value);
    do {
      digits[--at] = static_cast<char>('0' + rest % 10);
      rest /= 10;
    } while (rest > 0);
    if (value < 0) text("-");
    return text({digits.data() + at, digits.size() - at});
  }

  // As a JSON string; what is not printable ASCII becomes a question mark.
  SignalSafeWriter& quoted(std::string_view value) {
    text("\"");
    for (const char c : value) {
      if (c == '"' || c == '\\') text("\\");
      if (c == '\n') {
        text("\\n");
        continue;
      }
      const char shown = c < ' ' || c > '~' ? '?' : c;
      text({&shown, 1});
    }
    return text("\"");
  }

  // Whether all of it was written.
  bool finish() {
    flush();
    return good_;
  }

 private:
  void flush() {
    for (std::size_t at = 0; at < used_ && good_;) {
      const ssize_t written = ::write(file_, buffer_.data() + at, used_ - at);
      if (written > 0) {
        at += static_cast<std::size_t>(written);
      } else if (written < 0 && errno == EINTR) {
        continue;
      } else {
        good_ = false;
      }
    }
    used_ = 0;
  }

  int file_;
  bool good_ = true;
  std::size_t used_ = 0;
  std::array<char, 4096> buffer_;
};

}  // namespace belay::comm
