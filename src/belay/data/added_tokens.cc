#include "belay/data/added_tokens.h"

namespace belay::data {

std::uint32_t TokenFinder::child(std::uint32_t node, char byte) const {
  std::uint32_t next = nodes_[node].first_child;
  while (next != 0 && nodes_[next].byte != byte) next = nodes_[next].sibling;
  return next;
}

void TokenFinder::add(std::string_view text, std::int32_t token) {
  std::uint32_t node = 0;
  for (const char byte : text) {
    std::uint32_t next = child(node, byte);
    if (next == 0) {
      next = static_cast<std::uint32_t>(nodes_.size());
      nodes_.push_back({-1, 0, nodes_[node].first_child, byte});
      nodes_[node].first_child = next;
    }
    node = next;
  }
  nodes_[node].token = token;
  starts_[static_cast<unsigned char>(text.front())] = true;
}

std::optional<TokenFinder::Match> TokenFinder::find(std::string_view text, std::size_t from) const {
  if (empty()) return std::nullopt;
  for (std::size_t begin = from; begin < text.size(); ++begin) {
    if (!starts_[static_cast<unsigned char>(text[begin])]) continue;
    std::optional<Match> longest;
    std::uint32_t node = 0;
    for (std::size_t at = begin; at < text.size(); ++at) {
      node = child(node, text[at]);
      if (node == 0) break;
      if (nodes_[node].token >= 0) longest = Match{begin, at + 1, nodes_[node].token};
    }
    if (longest) return longest;
  }
  return std::nullopt;
}

}  // namespace belay::data
