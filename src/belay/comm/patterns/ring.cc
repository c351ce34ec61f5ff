// Rings: every position talks to its two neighbours only.

#include <utility>

#include "belay/comm/patterns/emit.h"
#include "belay/comm/patterns/patterns.h"

namespace belay::comm {
namespace {

class RingReduceScatter final : public Pattern {
 public:
  RingReduceScatter(Blocks blocks, Roles roles, std::vector<int> owned)
      : blocks_(std::move(blocks)), roles_(roles), owned_(std::move(owned)) {}

  [[nodiscard]] std::int64_t rounds() const override { return blocks_.size() - 1; }

  // Block b starts at position b + 1 and travels round to b, growing by one contribution a round.
  void append(int rank, std::int64_t round, std::vector<Step>& steps) const override {
    const int p = blocks_.size();
    Emit emit(steps);
    const Buffer travelling = round == 0 ? roles_.source : Buffer::work;
    const int leaving = owned(wrap(rank - round - 1, p));
    const int coming = owned(wrap(rank - round - 2, p));
    emit.send(wrap(rank + 1, p), {travelling, blocks_.begin(leaving)}, blocks_.count(leaving));
    const std::int64_t at = blocks_.begin(coming);
    const Buffer dst = round == p - 2 ? roles_.result : Buffer::work;
    emit.receive_reduce(wrap(rank - 1, p), travelling, {roles_.source, at}, {dst, at},
                        blocks_.count(coming), true);
  }

 private:
  [[nodiscard]] int owned(int position) const {
    return owned_.empty() ? position : owned_[static_cast<std::size_t>(position)];
  }

  Blocks blocks_;
  Roles roles_;
  std::vector<int> owned_;
};

class RingAllGather final : public Pattern {
 public:
  RingAllGather(Blocks blocks, std::vector<int> owned)
      : blocks_(std::move(blocks)), owned_(std::move(owned)) {}

  [[nodiscard]] std::int64_t rounds() const override { return blocks_.size() - 1; }

  void append(int rank, std::int64_t round, std::vector<Step>& steps) const override {
    const int p = blocks_.size();
    Emit emit(steps);
    const int leaving = owned(wrap(rank - round, p));
    const int coming = owned(wrap(rank - round - 1, p));
    emit.send(wrap(rank + 1, p), {Buffer::output, blocks_.begin(leaving)}, blocks_.count(leaving));
    emit.receive(wrap(rank - 1, p), Buffer::output, {Buffer::output, blocks_.begin(coming)},
                 blocks_.count(coming));
  }

 private:
  [[nodiscard]] int owned(int position) const {
    return owned_.empty() ? position : owned_[static_cast<std::size_t>(position)];
  }

  Blocks blocks_;
  std::vector<int> owned_;
};

}  // namespace

PatternPtr ring_reduce_scatter(Blocks blocks, Roles roles, std::vector<int> owned) {
  if (blocks.size() == 1) {
    return copy_range({blocks.begin(0), blocks.end(0)}, roles.source, roles.result);
  }
  return std::make_unique<RingReduceScatter>(std::move(blocks), roles, std::move(owned));
}

PatternPtr ring_all_gather(Blocks blocks, std::vector<int> owned) {
  return std::make_unique<RingAllGather>(std::move(blocks), std::move(owned));
}

}  // namespace belay::comm
