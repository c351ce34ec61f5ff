// Recursive doubling: partners exchange everything they have.

#include "belay/comm/patterns/emit.h"
#include "belay/comm/patterns/patterns.h"

namespace belay::comm {
namespace {

// With p = 2^k + e positions, 2i + 1 folds into 2i for i < e; what remains are 2^k players.
struct Players {
  explicit Players(int positions)
      : count(1 << log2_floor(positions)), extra(positions - (1 << log2_floor(positions))) {}

  // The player at a position, or -1 for one that folds.
  [[nodiscard]] int at(int position) const {
    if (position >= 2 * extra) return position - extra;
    return position % 2 == 0 ? position / 2 : -1;
  }
  [[nodiscard]] int position(int player) const {
    return player < extra ? 2 * player : player + extra;
  }

  int count;
  int extra;
};

class RecursiveDoubling final : public Pattern {
 public:
  RecursiveDoubling(int positions, Range range, Roles roles, bool posts)
      : players_(positions),
        exchanges_(log2_floor(positions)),
        range_(range),
        roles_(roles),
        posts_(posts) {}

  [[nodiscard]] std::int64_t rounds() const override {
    return fold_rounds() + exchange_rounds() + fold_rounds();
  }

  void append(int rank, std::int64_t round, std::vector<Step>& steps) const override {
    Emit emit(steps);
    const int player = players_.at(rank);
    if (round < fold_rounds()) {
      fold(emit, rank, player);
    } else if (round < fold_rounds() + exchange_rounds()) {
      if (player >= 0) exchange(emit, player, static_cast<int>(round - fold_rounds()));
    } else {
      unfold(emit, rank, player);
    }
  }

 private:
  [[nodiscard]] std::int64_t fold_rounds() const { return players_.extra > 0 ? 1 : 0; }
  [[nodiscard]] std::int64_t exchange_rounds() const {
    if (posts_) return std::int64_t{2} * exchanges_;
    return exchanges_ == 1 ? 2 : exchanges_;
  }
  [[nodiscard]] Place source() const { return {roles_.source, range_.begin}; }
  [[nodiscard]] Place result() const { return {roles_.result, range_.begin}; }
  [[nodiscard]] Place work() const { return {Buffer::work, range_.begin}; }
  // Two rooms, of even and of odd exchanges, so that what is being read is never written. Disjoint
  // ranges have disjoint rooms.
  [[nodiscard]] Place spare(int exchange) const {
    return {Buffer::spare, range_.begin + (exchange % 2 == 0 ? range_.begin : range_.end)};
  }
  [[nodiscard]] Place folded() const { return posts_ ? work() : spare(1); }

  // What the player holds before an exchange, and where the exchange leaves it.
  [[nodiscard]] Place before(int player, int exchange) const {
    if (exchange == 0) return player < players_.extra ? folded() : source();
    return after(exchange - 1);
  }
  [[nodiscard]] Place after(int exchange) const {
    const bool last = exchange == exchanges_ - 1;
    if (posts_) return last ? result() : work();
    // A single exchange reads the source, with which the result may share memory.
    return last && exchanges_ > 1 ? result() : spare(exchange);
  }

  void fold(Emit& emit, int rank, int player) const {
    if (rank >= 2 * players_.extra) return;
    if (player < 0) {
      emit.send(rank - 1, source(), range_.count());
    } else {
      emit.receive_reduce(rank + 1, roles_.source, source(), folded(), range_.count(), false);
    }
  }

  void exchange(Emit& emit, int player, int round) const {
    const int number = posts_ ? round / 2 : round;
    if (number >= exchanges_) {
      emit.copy(spare(0), result(), range_.count());
      return;
    }
    const int partner = player ^ (1 << number);
    const int peer = players_.position(partner);
    if (!posts_) emit.send(peer, before(player, number), range_.count());
    if (posts_ && round % 2 == 0) emit.post(peer, before(player, number), range_.count());
    if (!posts_ || round % 2 == 1) {
      emit.receive_reduce(peer, before(partner, number).buffer, before(player, number),
                          after(number), range_.count(), partner < player);
    }
  }

  void unfold(Emit& emit, int rank, int player) const {
    if (rank >= 2 * players_.extra) return;
    if (player < 0) {
      emit.receive(rank - 1, roles_.result, result(), range_.count());
    } else {
      emit.send(rank + 1, result(), range_.count());
    }
  }

  Players players_;
  int exchanges_;
  Range range_;
  Roles roles_;
  bool posts_;
};

class HalvingDoubling final : public Pattern {
 public:
  HalvingDoubling(int positions, Range range, Roles roles)
      : exchanges_(log2_floor(positions)),
        blocks_(Blocks::even(range.begin, range.end, positions)),
        roles_(roles) {}

  [[nodiscard]] std::int64_t rounds() const override { return std::int64_t{2} * exchanges_; }

  void append(int rank, std::int64_t round, std::vector<Step>& steps) const override {
    Emit emit(steps);
    const bool halving = round < exchanges_;
    const int exchange =
        static_cast<int>(halving ? round : std::int64_t{2} * exchanges_ - 1 - round);
    const int peer = rank ^ (1 << exchange);
    const Range mine = kept(rank, exchange);
    const Range theirs = kept(peer, exchange);
    if (halving) {
      const Buffer held = exchange == 0 ? roles_.source : Buffer::work;
      const Buffer dst = exchange == exchanges_ - 1 ? roles_.result : Buffer::work;
      emit.send(peer, {held, theirs.begin}, theirs.count());
      emit.receive_reduce(peer, held, {held, mine.begin}, {dst, mine.begin}, mine.count(),
                          peer < rank);
    } else {
      emit.send(peer, {roles_.result, mine.begin}, mine.count());
      emit.receive(peer, roles_.result, {roles_.result, theirs.begin}, theirs.count());
    }
  }

 private:
  // What is left to a rank after an exchange: bit i of the rank chooses the half.
  [[nodiscard]] Range kept(int rank, int exchange) const {
    int begin = 0;
    int size = blocks_.size();
    for (int i = 0; i <= exchange; ++i) {
      size /= 2;
      if (((rank >> i) & 1) != 0) begin += size;
    }
    return {blocks_.begin(begin), blocks_.end(begin + size - 1)};
  }

  int exchanges_;
  Blocks blocks_;
  Roles roles_;
};

}  // namespace

PatternPtr recursive_doubling(int positions, Range range, Roles roles, bool posts) {
  if (positions == 1) return copy_range(range, roles.source, roles.result);
  return std::make_unique<RecursiveDoubling>(positions, range, roles, posts);
}

PatternPtr halving_doubling(int positions, Range range, Roles roles) {
  if (positions == 1) return copy_range(range, roles.source, roles.result);
  return std::make_unique<HalvingDoubling>(positions, range, roles);
}

}  // namespace belay::comm
