// Double binary tree: an inner node of one tree is a leaf of the other, so that all send and
// receive about the same, and segments follow one another up and down both trees.

#include <utility>

#include "belay/comm/patterns/emit.h"
#include "belay/comm/patterns/patterns.h"

namespace belay::comm {
namespace {

struct Node {
  int parent = -1;
  int children[2] = {-1, -1};
  int side = 0;   // which child of its parent
  int depth = 0;  // of the root: 0
};

// The in-order binary tree over 0 .. p-1 whose root is 0: a number's lowest set bit is its height.
std::vector<Node> in_order_tree(int p) {
  std::vector<Node> tree(static_cast<std::size_t>(p));
  for (int r = 1; r < p; ++r) {
    const int bit = r & -r;
    int parent = (r ^ bit) | (bit << 1);
    if (parent >= p) parent = r ^ bit;
    Node& node = tree[static_cast<std::size_t>(r)];
    node.parent = parent;
    node.side = r < parent ? 0 : 1;
    tree[static_cast<std::size_t>(parent)].children[node.side] = r;
  }
  for (int r = 1; r < p; ++r) {
    int depth = 0;
    for (int at = r; at != 0; at = tree[static_cast<std::size_t>(at)].parent) ++depth;
    tree[static_cast<std::size_t>(r)].depth = depth;
  }
  return tree;
}

// The second tree: the first one mirrored, or shifted by one if p is odd.
std::vector<Node> other_tree(const std::vector<Node>& tree) {
  const int p = static_cast<int>(tree.size());
  const auto moved = [p](int r) {
    if (r < 0) return -1;
    return p % 2 == 0 ? p - 1 - r : (r + 1) % p;
  };
  std::vector<Node> result(tree.size());
  for (int r = 0; r < p; ++r) {
    Node node = tree[static_cast<std::size_t>(r)];
    node.parent = moved(node.parent);
    for (int& child : node.children) child = moved(child);
    result[static_cast<std::size_t>(moved(r))] = node;
  }
  return result;
}

// One tree. A segment goes up one level every two rounds (a parent hears its first child in the
// even round and its second in the odd one), and comes down the same way.
class Tree final : public Pattern {
 public:
  Tree(std::vector<Node> nodes, Blocks segments, Roles roles)
      : nodes_(std::move(nodes)), segments_(std::move(segments)), roles_(roles) {
    for (const Node& node : nodes_) depth_ = std::max(depth_, node.depth);
  }

  [[nodiscard]] std::int64_t rounds() const override {
    return std::int64_t{2} * (2 * depth_ + segments_.size());
  }

  void append(int rank, std::int64_t round, std::vector<Step>& steps) const override {
    const Node& node = nodes_[static_cast<std::size_t>(rank)];
    Emit emit(steps);
    const int side = static_cast<int>(round % 2);
    const std::int64_t beat = round / 2;
    if (node.parent >= 0 && node.side == side) {
      if (const int up = segment(beat - (depth_ - node.depth)); up >= 0) {
        emit.send(node.parent, {is_leaf(node) ? roles_.source : Buffer::work, at(up)}, count(up));
      }
      if (const int down = segment(beat - depth_ - (node.depth - 1)); down >= 0) {
        emit.receive(node.parent, roles_.result, {roles_.result, at(down)}, count(down));
      }
    }
    if (const int child = node.children[side]; child >= 0) {
      if (const int up = segment(beat - (depth_ - node.depth - 1)); up >= 0) {
        const bool first = side == 0 || node.children[0] < 0;
        const bool last = side == 1 || node.children[1] < 0;
        const Buffer from =
            is_leaf(nodes_[static_cast<std::size_t>(child)]) ? roles_.source : Buffer::work;
        const Buffer dst = last && node.parent < 0 ? roles_.result : Buffer::work;
        emit.receive_reduce(child, from, {first ? roles_.source : Buffer::work, at(up)},
                            {dst, at(up)}, count(up), false);
      }
      if (const int down = segment(beat - depth_ - node.depth); down >= 0) {
        emit.send(child, {roles_.result, at(down)}, count(down));
      }
    }
  }

 private:
  static bool is_leaf(const Node& node) { return node.children[0] < 0 && node.children[1] < 0; }
  [[nodiscard]] int segment(std::int64_t number) const {
    return number >= 0 && number < segments_.size() ? static_cast<int>(number) : -1;
  }
  [[nodiscard]] std::int64_t at(int segment) const { return segments_.begin(segment); }
  [[nodiscard]] std::int64_t count(int segment) const { return segments_.count(segment); }

  std::vector<Node> nodes_;
  Blocks segments_;
  Roles roles_;
  int depth_ = 0;
};

}  // namespace

PatternPtr double_tree(int positions, Range range, Roles roles, int segments) {
  if (positions == 1) return copy_range(range, roles.source, roles.result);
  std::vector<Node> first = in_order_tree(positions);
  std::vector<Node> second = other_tree(first);
  const Blocks halves = Blocks::even(range.begin, range.end, 2);
  std::vector<PatternPtr> trees;
  trees.push_back(std::make_unique<Tree>(
      std::move(first), Blocks::even(halves.begin(0), halves.end(0), segments), roles));
  trees.push_back(std::make_unique<Tree>(
      std::move(second), Blocks::even(halves.begin(1), halves.end(1), segments), roles));
  return together(std::move(trees));
}

}  // namespace belay::comm
