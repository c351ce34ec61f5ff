#pragma once
// Added tokens: texts such as "<|im_start|>" that are cut out of the text before anything else.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace belay::data {

struct AddedToken {
  std::int32_t id = 0;
  std::string text;
  bool special = false;      // a control mark; matched only under SpecialText::map
  bool normalized = false;   // looked for after normalisation instead of before
  bool strip_left = false;   // takes the white space before it along
  bool strip_right = false;  // and that after it
};

// Finds a set of texts: leftmost, longest at each place.
class TokenFinder {
 public:
  TokenFinder() : nodes_(1), starts_(256, false) {}
  // `token` is what find() gives back; text not empty.
  void add(std::string_view text, std::int32_t token);
  [[nodiscard]] bool empty() const { return nodes_.size() == 1; }

  struct Match {
    std::size_t begin;
    std::size_t end;
    std::int32_t token;
  };
  // First match at or after `from`.
  [[nodiscard]] std::optional<Match> find(std::string_view text, std::size_t from) const;

 private:
  // A trie; children are chained by sibling links, since the sets are small.
  struct Node {
    std::int32_t token = -1;
    std::uint32_t first_child = 0;
    std::uint32_t sibling = 0;
    char byte = 0;
  };
  [[nodiscard]] std::uint32_t child(std::uint32_t node, char byte) const;

  std::vector<Node> nodes_;
  std::vector<bool> starts_;
};

}  // namespace belay::data
