#pragma once
// A collective algorithm as data: what each rank does, in which order. The same steps are checked
// (checker.h), simulated (simulator.h) and executed (executor.h).
//
// Order. A schedule has lanes; a lane has rounds; a round has steps. On one rank
//   - rounds of a lane run one after the other: a round begins when the one before is complete;
//   - steps of one round are unordered, but for `combine`, which follows the gathers and fills of
//     its round; what it reads of a rank it has read before it writes there;
//   - lanes are unordered, and never touch the same bytes.
// Messages from one rank to another on one lane arrive in the order of the rounds, and within a
// round in the order of the steps. A message is sent and received in the same round, or posted in
// an earlier round than it is received in: so no order of waiting can close a circle.
//
// Places. A step names elements of a buffer:
//   input   the caller's input; never written
//   output  the caller's output; holds complete values only
//   work    partial results, in the accumulation type, one element per element of the vector.
//           Shares memory with output where types and sizes agree, as input may with output;
//           a schedule must be right with and without.
//   spare   more room for partial results, `Schedule::spare` elements, shared with nothing
// A value becomes complete where a reduction, or a copy from work or spare, writes to output: there
// the average is divided and the result rounded to the storage type, once. Work and spare hold
// elements in the accumulation type, input and output in the storage type; so does a message from
// there.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "belay/comm/collective.h"

namespace belay::comm {

// The most that a schedule has.
inline constexpr int kMostLanes = 8;

enum class Buffer : std::uint8_t { input, output, work, spare };

// Whether its elements have the accumulation type.
constexpr bool is_wide(Buffer buffer) {
  return buffer == Buffer::work || buffer == Buffer::spare;
}

enum class StepKind : std::uint8_t {
  send,            // src to peer; complete when the peer has used it
  post,            // src to peer through the transport's buffers; complete when it is there
  receive,         // dst = message
  receive_reduce,  // dst = base op message (or message op base)
  gather,          // a message that the round's next combine uses
  combine,         // dst = fixed tree over the gathered messages and base, in rank order
  lend,            // src, of output, to the peer to write to; complete when it has
  fill,            // a lent message, to which the round's next combine writes its result as well
  copy,            // dst = src; nothing where input and output share the memory
};

constexpr bool sends(StepKind kind) {
  return kind == StepKind::send || kind == StepKind::post || kind == StepKind::lend;
}
// Messages that the round's next combine uses.
constexpr bool is_held(StepKind kind) {
  return kind == StepKind::gather || kind == StepKind::fill;
}

struct Place {
  Buffer buffer = Buffer::input;
  std::int64_t offset = 0;  // elements
};

struct Step {
  StepKind kind = StepKind::send;
  bool message_first = false;  // operand order of receive_reduce
  std::int32_t peer = -1;      // of messages
  // combine: where base stands among the contributions, in the order of the gathers before it.
  std::int32_t position = 0;
  std::int64_t count = 0;  // elements
  // Of messages received: the sender's buffer, which says how the elements are stored.
  Place src{};
  Place base{};
  Place dst{};
};

// What each rank does in each round, of one lane. Rounds are numbered from 0; a rank may have
// nothing to do in one.
class Pattern {
 public:
  virtual ~Pattern() = default;
  [[nodiscard]] virtual std::int64_t rounds() const = 0;
  // Appends the steps of one rank in one round.
  virtual void append(int rank, std::int64_t round, std::vector<Step>& steps) const = 0;
};
using PatternPtr = std::unique_ptr<Pattern>;

// Cuts [begin, end) of a vector in blocks; block i is [bounds[i], bounds[i + 1]).
struct Blocks {
  std::vector<std::int64_t> bounds{0};

  [[nodiscard]] int size() const { return static_cast<int>(bounds.size()) - 1; }
  [[nodiscard]] std::int64_t begin(int block) const {
    return bounds[static_cast<std::size_t>(block)];
  }
  [[nodiscard]] std::int64_t end(int block) const {
    return bounds[static_cast<std::size_t>(block) + 1];
  }
  [[nodiscard]] std::int64_t count(int block) const { return end(block) - begin(block); }
  [[nodiscard]] std::int64_t total() const { return bounds.back() - bounds.front(); }

  // As even as possible; long blocks begin at multiples of 16 elements.
  static Blocks even(std::int64_t begin, std::int64_t end, int blocks);
};

struct Schedule {
  std::string name;
  Collective collective = Collective::all_reduce;
  int ranks = 1;
  int root = 0;
  Blocks blocks;           // who owns what, one block per rank
  std::int64_t spare = 0;  // elements of the spare buffer
  std::vector<PatternPtr> lanes;

  [[nodiscard]] std::int64_t count() const { return blocks.total(); }
};

// One rank's part of a schedule, written out.
struct Program {
  struct Round {
    std::int64_t number = 0;  // in its lane
    std::uint32_t begin = 0;  // steps
    std::uint32_t end = 0;
  };
  struct Lane {
    std::uint32_t begin = 0;  // rounds
    std::uint32_t end = 0;
  };
  std::vector<Step> steps;
  std::vector<Round> rounds;
  std::vector<Lane> lanes;
};
Program program_of(const Schedule& schedule, int rank);

}  // namespace belay::comm
