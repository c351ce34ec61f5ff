#include "belay/train/settings_check.h"

#include <fmt/format.h>

#include <map>
#include <vector>

namespace belay {
namespace {

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(' ');
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(' ') - begin + 1);
}

// Without the comment behind it.
std::string_view value_of(std::string_view text) {
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"' && (i == 0 || text[i - 1] != '\\')) quoted = !quoted;
    if (text[i] == '#' && !quoted) return trimmed(text.substr(0, i));
  }
  return trimmed(text);
}

// Values by "section.key", and by the whole line where it is not an assignment.
std::map<std::string, std::string> values_of(std::string_view text) {
  std::map<std::string, std::string> values;
  std::string section;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const std::string_view line = trimmed(text.substr(0, end));
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    if (line.starts_with('[') && line.ends_with(']')) {
      section = std::string(line.substr(1, line.size() - 2)) + ".";
      continue;
    }
    const std::size_t equals = line.find('=');
    // Options of the command line follow the sections.
    if (line.starts_with("--")) {
      const std::size_t space = line.find(' ');
      values[std::string(line.substr(0, space))] =
          space == std::string_view::npos ? "" : trimmed(line.substr(space));
    } else if (equals != std::string_view::npos) {
      values[section + std::string(trimmed(line.substr(0, equals)))] =
          value_of(line.substr(equals + 1));
    }
  }
  return values;
}

}  // namespace

std::string difference_of_settings(std::string_view here, std::string_view there) {
  if (here == there) return {};
  constexpr std::size_t kMost = 3;
  const auto ours = values_of(here);
  const auto theirs = values_of(there);
  std::vector<std::string> found;
  std::size_t more = 0;
  const auto note = [&](const std::string& key, std::string_view own, std::string_view other) {
    if (found.size() == kMost) {
      ++more;
    } else {
      found.push_back(fmt::format("{} is {} here and {} there", key, own, other));
    }
  };
  for (const auto& [key, value] : ours) {
    const auto other = theirs.find(key);
    if (other == theirs.end()) {
      note(key, value, "not set");
    } else if (other->second != value) {
      note(key, value, other->second);
    }
  }
  for (const auto& [key, value] : theirs) {
    if (!ours.contains(key)) note(key, "not set", value);
  }
  std::string text = fmt::format("{}", fmt::join(found, "; "));
  if (more > 0) text += fmt::format("; and {} more", more);
  return text.empty() ? "they are written in different ways" : text;
}

}  // namespace belay
