// Broadcast and reduction from and to position 0, and the barrier.

#include <utility>

#include "belay/comm/patterns/emit.h"
#include "belay/comm/patterns/patterns.h"

namespace belay::comm {
namespace {

class BinomialBroadcast final : public Pattern {
 public:
  BinomialBroadcast(int positions, Range range, Buffer root_source)
      : p_(positions), range_(range), root_source_(root_source) {}

  [[nodiscard]] std::int64_t rounds() const override { return log2_ceil(p_); }

  void append(int rank, std::int64_t round, std::vector<Step>& steps) const override {
    Emit emit(steps);
    const int distance = 1 << round;
    if (rank < distance && rank + distance < p_) {
      emit.send(rank + distance, {source_of(rank), range_.begin}, range_.count());
    } else if (rank >= distance && rank < 2 * distance) {
      emit.receive(rank - distance, source_of(rank - distance), {Buffer::output, range_.begin},
                   range_.count());
    }
  }

 private:
  [[nodiscard]] Buffer source_of(int rank) const {
    return rank == 0 ? root_source_ : Buffer::output;
  }

  int p_;
  Range range_;
  Buffer root_source_;
};

class FlatBroadcast final : public Pattern {
 public:
  FlatBroadcast(int positions, Range range) : p_(positions), range_(range) {}

  [[nodiscard]] std::int64_t rounds() const override { return 1; }

  void append(int rank, std::int64_t, std::vector<Step>& steps) const override {
    Emit emit(steps);
    if (rank > 0) {
      emit.receive(0, Buffer::input, {Buffer::output, range_.begin}, range_.count());
      return;
    }
    for (int peer = 1; peer < p_; ++peer) {
      emit.send(peer, {Buffer::input, range_.begin}, range_.count());
    }
  }

 private:
  int p_;
  Range range_;
};

class CollectAtRoot final : public Pattern {
 public:
  CollectAtRoot(Blocks blocks, int root) : blocks_(std::move(blocks)), root_(root) {}

  [[nodiscard]] std::int64_t rounds() const override { return 2; }

  void append(int rank, std::int64_t round, std::vector<Step>& steps) const override {
    Emit emit(steps);
    if (rank != root_) {
      if (round == 0) {
        emit.send(root_, {Buffer::spare, blocks_.begin(rank)}, blocks_.count(rank));
      }
      return;
    }
    if (round == 1) {
      emit.copy({Buffer::spare, blocks_.bounds.front()}, {Buffer::output, blocks_.bounds.front()},
                blocks_.total());
      return;
    }
    for (int peer = 0; peer < blocks_.size(); ++peer) {
      if (peer == root_) continue;
      emit.receive(peer, Buffer::spare, {Buffer::spare, blocks_.begin(peer)}, blocks_.count(peer));
    }
  }

 private:
  Blocks blocks_;
  int root_;
};

// Position v hands segment k on in round v + k.
class ChainBroadcast final : public Pattern {
 public:
  ChainBroadcast(int positions, Range range, int segments)
      : p_(positions), segments_(Blocks::even(range.begin, range.end, segments)) {}

  [[nodiscard]] std::int64_t rounds() const override { return p_ - 1 + segments_.size() - 1; }

  void append(int rank, std::int64_t round, std::vector<Step>& steps) const override {
    Emit emit(steps);
    const auto source_of = [](int at) { return at == 0 ? Buffer::input : Buffer::output; };
    const std::int64_t leaving = round - rank;
    if (rank + 1 < p_ && leaving >= 0 && leaving < segments_.size()) {
      const int segment = static_cast<int>(leaving);
      emit.send(rank + 1, {source_of(rank), segments_.begin(segment)}, segments_.count(segment));
    }
    const std::int64_t coming = leaving + 1;
    if (rank > 0 && coming >= 0 && coming < segments_.size()) {
      const int segment = static_cast<int>(coming);
      emit.receive(rank - 1, source_of(rank - 1), {Buffer::output, segments_.begin(segment)},
                   segments_.count(segment));
    }
  }

 private:
  int p_;
  Blocks segments_;
};

class BinomialReduce final : public Pattern {
 public:
  BinomialReduce(int positions, Range range, Roles roles, Buffer partial)
      : p_(positions), range_(range), roles_(roles), partial_(partial) {}

  [[nodiscard]] std::int64_t rounds() const override { return log2_ceil(p_); }

  void append(int rank, std::int64_t round, std::vector<Step>& steps) const override {
    Emit emit(steps);
    const int distance = 1 << round;
    if (rank % distance != 0) return;
    if (rank % (2 * distance) != 0) {
      emit.send(rank - distance, {held(rank, round), range_.begin}, range_.count());
    } else if (rank + distance < p_) {
      const bool last = rank == 0 && round == rounds() - 1;
      emit.receive_reduce(rank + distance, held(rank + distance, round),
                          {held(rank, round), range_.begin},
                          {last ? roles_.result : partial_, range_.begin}, range_.count(), false);
    }
  }

 private:
  // What a position holds before a round in which it is still active.
  [[nodiscard]] Buffer held(int rank, std::int64_t round) const {
    return round > 0 && rank + 1 < p_ ? partial_ : roles_.source;
  }

  int p_;
  Range range_;
  Roles roles_;
  Buffer partial_;
};

// Position p-1 starts; position v hands segment k on in round p-1-v + k.
class ChainReduce final : public Pattern {
 public:
  ChainReduce(int positions, Range range, int segments)
      : p_(positions), segments_(Blocks::even(range.begin, range.end, segments)) {}

  [[nodiscard]] std::int64_t rounds() const override { return p_ - 1 + segments_.size() - 1; }

  void append(int rank, std::int64_t round, std::vector<Step>& steps) const override {
    Emit emit(steps);
    const auto held = [this](int at) { return at == p_ - 1 ? Buffer::input : Buffer::spare; };
    const std::int64_t leaving = round - (p_ - 1 - rank);
    if (rank > 0 && leaving >= 0 && leaving < segments_.size()) {
      const int segment = static_cast<int>(leaving);
      emit.send(rank - 1, {held(rank), segments_.begin(segment)}, segments_.count(segment));
    }
    const std::int64_t coming = leaving + 1;
    if (rank + 1 < p_ && coming >= 0 && coming < segments_.size()) {
      const int segment = static_cast<int>(coming);
      const std::int64_t at = segments_.begin(segment);
      emit.receive_reduce(rank + 1, held(rank + 1), {Buffer::input, at},
                          {rank == 0 ? Buffer::output : Buffer::spare, at},
                          segments_.count(segment), false);
    }
  }

 private:
  int p_;
  Blocks segments_;
};

class DisseminationBarrier final : public Pattern {
 public:
  explicit DisseminationBarrier(int positions) : p_(positions) {}

  [[nodiscard]] std::int64_t rounds() const override { return log2_ceil(p_); }

  void append(int rank, std::int64_t round, std::vector<Step>& steps) const override {
    Emit emit(steps);
    emit.signal(wrap(rank + (std::int64_t{1} << round), p_));
    emit.await_signal(wrap(rank - (std::int64_t{1} << round), p_));
  }

 private:
  int p_;
};

// The root's copy, while the others receive.
PatternPtr with_root_copy(PatternPtr pattern, int positions, Range range) {
  std::vector<Group> groups;
  groups.push_back({copy_range(range, Buffer::input, Buffer::output), {0}});
  std::vector<int> all(static_cast<std::size_t>(positions));
  for (int rank = 0; rank < positions; ++rank) all[static_cast<std::size_t>(rank)] = rank;
  groups.push_back({std::move(pattern), std::move(all)});
  return on_groups(std::move(groups), positions);
}

}  // namespace

PatternPtr binomial_broadcast(int positions, Range range) {
  return with_root_copy(std::make_unique<BinomialBroadcast>(positions, range, Buffer::input),
                        positions, range);
}

PatternPtr flat_broadcast(int positions, Range range) {
  return with_root_copy(std::make_unique<FlatBroadcast>(positions, range), positions, range);
}

PatternPtr collect_at_root(Blocks blocks, int root) {
  return std::make_unique<CollectAtRoot>(std::move(blocks), root);
}

PatternPtr leader_broadcast(int positions, Range range) {
  return std::make_unique<BinomialBroadcast>(positions, range, Buffer::output);
}

PatternPtr chain_broadcast(int positions, Range range, int segments) {
  return with_root_copy(std::make_unique<ChainBroadcast>(positions, range, segments), positions,
                        range);
}

PatternPtr binomial_reduce(int positions, Range range) {
  if (positions == 1) return copy_range(range, Buffer::input, Buffer::output);
  return std::make_unique<BinomialReduce>(positions, range, Roles{}, Buffer::spare);
}

PatternPtr leader_reduce(int positions, Range range, Roles roles) {
  if (positions == 1) return copy_range(range, roles.source, roles.result);
  return std::make_unique<BinomialReduce>(positions, range, roles, Buffer::work);
}

PatternPtr chain_reduce(int positions, Range range, int segments) {
  if (positions == 1) return copy_range(range, Buffer::input, Buffer::output);
  return std::make_unique<ChainReduce>(positions, range, segments);
}

PatternPtr dissemination_barrier(int positions) {
  return std::make_unique<DisseminationBarrier>(positions);
}

}  // namespace belay::comm
