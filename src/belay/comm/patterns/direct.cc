// Every pair of positions at once.

#include <utility>

#include "belay/comm/patterns/emit.h"
#include "belay/comm/patterns/patterns.h"

namespace belay::comm {
namespace {

class DirectReduceScatter final : public Pattern {
 public:
  DirectReduceScatter(Blocks blocks, Roles roles) : blocks_(std::move(blocks)), roles_(roles) {}

  [[nodiscard]] std::int64_t rounds() const override { return 1; }

  void append(int rank, std::int64_t, std::vector<Step>& steps) const override {
    const int p = blocks_.size();
    Emit emit(steps);
    // Starting beyond oneself spreads the first messages over all receivers.
    for (int i = 1; i < p; ++i) {
      const int peer = wrap(rank + i, p);
      emit.send(peer, {roles_.source, blocks_.begin(peer)}, blocks_.count(peer));
    }
    for (int peer = 0; peer < p; ++peer) {
      if (peer != rank) emit.gather(peer, roles_.source, blocks_.count(rank));
    }
    emit.combine(rank, {roles_.source, blocks_.begin(rank)}, {roles_.result, blocks_.begin(rank)},
                 blocks_.count(rank));
  }

 private:
  Blocks blocks_;
  Roles roles_;
};

class DirectAllGather final : public Pattern {
 public:
  explicit DirectAllGather(Blocks blocks) : blocks_(std::move(blocks)) {}

  [[nodiscard]] std::int64_t rounds() const override { return blocks_.size() > 1 ? 1 : 0; }

  void append(int rank, std::int64_t, std::vector<Step>& steps) const override {
    const int p = blocks_.size();
    Emit emit(steps);
    for (int i = 1; i < p; ++i) {
      emit.send(wrap(rank + i, p), {Buffer::output, blocks_.begin(rank)}, blocks_.count(rank));
    }
    for (int i = 1; i < p; ++i) {
      const int peer = wrap(rank - i, p);
      emit.receive(peer, Buffer::output, {Buffer::output, blocks_.begin(peer)},
                   blocks_.count(peer));
    }
  }

 private:
  Blocks blocks_;
};

class DirectStore final : public Pattern {
 public:
  DirectStore(Blocks blocks, Roles roles) : blocks_(std::move(blocks)), roles_(roles) {}

  [[nodiscard]] std::int64_t rounds() const override { return 1; }

  void append(int rank, std::int64_t, std::vector<Step>& steps) const override {
    const int p = blocks_.size();
    Emit emit(steps);
    for (int i = 1; i < p; ++i) {
      const int peer = wrap(rank + i, p);
      emit.send(peer, {roles_.source, blocks_.begin(peer)}, blocks_.count(peer));
      emit.lend(peer, {roles_.result, blocks_.begin(peer)}, blocks_.count(peer));
    }
    for (int peer = 0; peer < p; ++peer) {
      if (peer == rank) continue;
      emit.gather(peer, roles_.source, blocks_.count(rank));
      emit.fill(peer, blocks_.count(rank));
    }
    emit.combine(rank, {roles_.source, blocks_.begin(rank)}, {roles_.result, blocks_.begin(rank)},
                 blocks_.count(rank));
  }

 private:
  Blocks blocks_;
  Roles roles_;
};

class OneShot final : public Pattern {
 public:
  OneShot(int positions, Range range, Roles roles, bool posts)
      : p_(positions), range_(range), roles_(roles), posts_(posts) {}

  [[nodiscard]] std::int64_t rounds() const override { return 2; }

  void append(int rank, std::int64_t round, std::vector<Step>& steps) const override {
    Emit emit(steps);
    const Place source{roles_.source, range_.begin};
    const Place result{roles_.result, range_.begin};
    const Place spare{Buffer::spare, 2 * range_.begin};
    if (round == 0) {
      for (int i = 1; i < p_; ++i) {
        const int peer = wrap(rank + i, p_);
        if (posts_) {
          emit.post(peer, source, range_.count());
        } else {
          emit.send(peer, source, range_.count());
        }
      }
    }
    // Where the result may share memory with the source, it waits until that has been read.
    if ((round == 1) == posts_) {
      for (int peer = 0; peer < p_; ++peer) {
        if (peer != rank) emit.gather(peer, roles_.source, range_.count());
      }
      emit.combine(rank, source, posts_ ? result : spare, range_.count());
    } else if (round == 1) {
      emit.copy(spare, result, range_.count());
    }
  }

 private:
  int p_;
  Range range_;
  Roles roles_;
  bool posts_;
};

class AllToAll final : public Pattern {
 public:
  AllToAll(Blocks blocks, bool pairwise) : blocks_(std::move(blocks)), pairwise_(pairwise) {}

  [[nodiscard]] std::int64_t rounds() const override { return pairwise_ ? blocks_.size() : 1; }

  void append(int rank, std::int64_t round, std::vector<Step>& steps) const override {
    const int p = blocks_.size();
    Emit emit(steps);
    const int first = pairwise_ ? static_cast<int>(round) : 0;
    const int last = pairwise_ ? first + 1 : p;
    for (int distance = first; distance < last; ++distance) {
      const int to = wrap(rank + distance, p);
      const int from = wrap(rank - distance, p);
      if (distance == 0) {
        emit.copy({Buffer::input, blocks_.begin(rank)}, {Buffer::output, blocks_.begin(rank)},
                  blocks_.count(rank));
      } else {
        emit.send(to, {Buffer::input, blocks_.begin(to)}, blocks_.count(to));
        emit.receive(from, Buffer::input, {Buffer::output, blocks_.begin(from)},
                     blocks_.count(from));
      }
    }
  }

 private:
  Blocks blocks_;
  bool pairwise_;
};

}  // namespace

PatternPtr direct_reduce_scatter(Blocks blocks, Roles roles) {
  if (blocks.size() == 1) {
    return copy_range({blocks.begin(0), blocks.end(0)}, roles.source, roles.result);
  }
  return std::make_unique<DirectReduceScatter>(std::move(blocks), roles);
}

PatternPtr direct_all_gather(Blocks blocks) {
  return std::make_unique<DirectAllGather>(std::move(blocks));
}

PatternPtr direct_store(Blocks blocks, Roles roles) {
  if (blocks.size() == 1) {
    return copy_range({blocks.begin(0), blocks.end(0)}, roles.source, roles.result);
  }
  return std::make_unique<DirectStore>(std::move(blocks), roles);
}

PatternPtr one_shot(int positions, Range range, Roles roles, bool posts) {
  if (positions == 1) return copy_range(range, roles.source, roles.result);
  return std::make_unique<OneShot>(positions, range, roles, posts);
}

PatternPtr pairwise_all_to_all(Blocks blocks) {
  return std::make_unique<AllToAll>(std::move(blocks), true);
}

PatternPtr direct_all_to_all(Blocks blocks) {
  return std::make_unique<AllToAll>(std::move(blocks), false);
}

}  // namespace belay::comm
