#pragma once
// Reads the words of a state that a snapshot kept as text.

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string_view>

#include "belay/base/error.h"

namespace belay {

class StateReader {
 public:
  StateReader(std::string_view what, std::string_view text)
      : what_(what), text_(text), rest_(text) {}

  std::string_view word() {
    rest_.remove_prefix(std::min(rest_.find_first_not_of(' '), rest_.size()));
    const std::string_view found = rest_.substr(0, rest_.find(' '));
    if (found.empty()) refuse();
    rest_.remove_prefix(found.size());
    return found;
  }
  std::int64_t whole() { return number<std::int64_t>(); }
  double real() { return number<double>(); }
  void finish() {
    if (rest_.find_first_not_of(' ') != std::string_view::npos) refuse();
  }
  [[noreturn]] void refuse() const {
    fail(ExitCode::data, "the snapshot's state of the {} is damaged: '{}'", what_,
         text_.substr(0, 80));
  }

 private:
  template <class T>
  T number() {
    const std::string_view text = word();
    T value{};
    const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
    if (result.ec != std::errc() || result.ptr != text.data() + text.size()) refuse();
    return value;
  }

  std::string_view what_;
  std::string_view text_;
  std::string_view rest_;
};

}  // namespace belay
