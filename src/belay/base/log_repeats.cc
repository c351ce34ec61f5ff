#include "belay/base/log_repeats.h"

#include <fmt/format.h>

#include <cctype>

namespace belay::log {
namespace {

bool is_digit(char c) {
  return std::isdigit(static_cast<unsigned char>(c)) != 0;
}

constexpr std::size_t kLongNumber = 4;

// With '#' in the place of numbers that do not count.
std::string kind_of(std::string_view message) {
  std::string kind;
  for (std::size_t i = 0; i < message.size();) {
    std::size_t end = i;
    while (end < message.size() && is_digit(message[end])) ++end;
    if (end == i) {
      kind += message[i++];
      continue;
    }
    if (kind.ends_with("step ") || end - i >= kLongNumber) {
      kind += '#';
    } else {
      kind += message.substr(i, end - i);
    }
    i = end;
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
    return fmt::format("{} (from now on only every {}th like it is shown; log.txt has each)",
                       message, kEvery);
  }
  if ((count - kShown) % kEvery != 0) return std::nullopt;
  return fmt::format("{} ({} like it so far)", message, count);
}

}  // namespace belay::log
