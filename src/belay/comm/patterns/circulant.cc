// Reduce-scatter and all-gather in ceil(log2 p) rounds for any p, with no more bytes than a ring.
// Position r sees the blocks as r, r+1, ..., r+p-1 (mod p) and calls them 0 .. p-1. While s' of
// them are open, blocks [s, s') with s = ceil(s'/2) go to position r+s, whose first s'-s blocks
// they are.

#include <algorithm>
#include <utility>

#include "belay/comm/patterns/emit.h"
#include "belay/comm/patterns/patterns.h"

namespace belay::comm {
namespace {

struct Halving {
  int keep = 0;  // s
  int open = 0;  // s'
};

std::vector<Halving> halvings(int p) {
  std::vector<Halving> result;
  for (int open = p; open > 1; open = (open + 1) / 2) result.push_back({(open + 1) / 2, open});
  return result;
}

// Calls run(first block, elements' range) for blocks first .. first+count-1 (mod p), in at most two
// runs of neighbours.
template <class Run>
void for_runs(const Blocks& blocks, int first, int count, Run run) {
  const int p = blocks.size();
  const int begin = wrap(first, p);
  const int before_wrap = std::min(count, p - begin);
  if (before_wrap > 0) run(Range{blocks.begin(begin), blocks.end(begin + before_wrap - 1)});
  if (count > before_wrap) run(Range{blocks.begin(0), blocks.end(count - before_wrap - 1)});
}

class CirculantReduceScatter final : public Pattern {
 public:
  CirculantReduceScatter(Blocks blocks, Roles roles)
      : blocks_(std::move(blocks)), roles_(roles), halvings_(halvings(blocks_.size())) {}

  [[nodiscard]] std::int64_t rounds() const override {
    return static_cast<std::int64_t>(halvings_.size());
  }

  void append(int rank, std::int64_t round, std::vector<Step>& steps) const override {
    const int p = blocks_.size();
    const auto [keep, open] = halvings_[static_cast<std::size_t>(round)];
    Emit emit(steps);
    const int to = wrap(rank + keep, p);
    for_sent(rank, round, [&](Range range, Buffer from) {
      emit.send(to, {from, range.begin}, range.count());
    });
    const int sender = wrap(rank - keep, p);
    const Buffer base = round == 0 ? roles_.source : Buffer::work;
    const Buffer dst = open == 2 ? roles_.result : Buffer::work;
    for_sent(sender, round, [&](Range range, Buffer from) {
      emit.receive_reduce(sender, from, {base, range.begin}, {dst, range.begin}, range.count(),
                          true);
    });
  }

 private:
  // What `rank` sends. Only the first floor(p/2) blocks have grown since the first round; if p is
  // odd, the last one sent in the second round is still the rank's own contribution.
  template <class Run>
  void for_sent(int rank, std::int64_t round, Run run) const {
    const auto [keep, open] = halvings_[static_cast<std::size_t>(round)];
    const int grown = round == 0 ? 0 : blocks_.size() / 2;
    const int middle = std::clamp(grown, keep, open);
    for_runs(blocks_, rank + keep, middle - keep, [&](Range range) { run(range, Buffer::work); });
    for_runs(blocks_, rank + middle, open - middle,
             [&](Range range) { run(range, roles_.source); });
  }

  Blocks blocks_;
  Roles roles_;
  std::vector<Halving> halvings_;
};

class CirculantAllGather final : public Pattern {
 public:
  explicit CirculantAllGather(Blocks blocks)
      : blocks_(std::move(blocks)), halvings_(halvings(blocks_.size())) {
    std::reverse(halvings_.begin(), halvings_.end());
  }

  [[nodiscard]] std::int64_t rounds() const override {
    return static_cast<std::int64_t>(halvings_.size());
  }

  void append(int rank, std::int64_t round, std::vector<Step>& steps) const override {
    const int p = blocks_.size();
    const auto [keep, open] = halvings_[static_cast<std::size_t>(round)];
    Emit emit(steps);
    const int to = wrap(rank - keep, p);
    for_runs(blocks_, rank, open - keep, [&](Range range) {
      emit.send(to, {Buffer::output, range.begin}, range.count());
    });
    const int from = wrap(rank + keep, p);
    for_runs(blocks_, from, open - keep, [&](Range range) {
      emit.receive(from, Buffer::output, {Buffer::output, range.begin}, range.count());
    });
  }

 private:
  Blocks blocks_;
  std::vector<Halving> halvings_;
};

}  // namespace

PatternPtr circulant_reduce_scatter(Blocks blocks, Roles roles) {
  if (blocks.size() == 1) {
    return copy_range({blocks.begin(0), blocks.end(0)}, roles.source, roles.result);
  }
  return std::make_unique<CirculantReduceScatter>(std::move(blocks), roles);
}

PatternPtr circulant_all_gather(Blocks blocks) {
  return std::make_unique<CirculantAllGather>(std::move(blocks));
}

}  // namespace belay::comm
