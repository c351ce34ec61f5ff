#pragma once
// Keeps a warning that comes again and again from filling the console. Messages are of one kind if
// they differ only in the number after "step" and in numbers of four digits and more (ranks, links
// and layers tell kinds apart): the first few are shown, then every hundredth, with their number.

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace belay::log {

class Repeats {
 public:
  static constexpr std::size_t kShown = 3;
  static constexpr std::size_t kEvery = 100;
  // Kinds beyond so many are always shown.
  static constexpr std::size_t kMostKinds = 1000;

  // What to show in place of the message, if anything.
  std::optional<std::string> shown(std::string_view message);

 private:
  std::map<std::string, std::size_t, std::less<>> counts_;
};

}  // namespace belay::log
