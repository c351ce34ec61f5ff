#include "belay/base/log_repeats.h"

#include <fmt/format.h>

#include <cctype>

namespace belay::log {
namespace {

bool is_digit(char c) {
  return std::isdigit(static_cast<unsigned char>(c)) != 0;
}

// Every run of digits becomes one '#'.
std::string kind_of(std::string_view message) {
  std::string kind;
  for (std::size_t i = 0; i < message.size(); ++i) {
    if (!is_digit(message[i])) {
      kind += message[i];
    } else if (i == 0 || !is_digit(message[i - 1])) {
      kind += '#';
    }
  }
  return kind;
}

}  // namespace

std::optional<std::string> Repeats::shown(std::string_view message) {
  std::string kind = kind_of(message);
  if (counts_.size() >= kMostKinds && !counts_.contains(kind)) return std::string(message);
  const std::size_t count = ++counts_[std::move(kind)];
  if (count < kShown) return std::string(message);
  if (count == kShown) {
    return fmt::format("{} (from now on only every {}th like it is shown; log.txt has them all)",
                       message, kEvery);
  }
  if ((count - kShown) % kEvery != 0) return std::nullopt;
  return fmt::format("{} ({} like it so far)", message, count);
}

}  // namespace belay::log
