#include "belay/comm/checker.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "belay/comm/checker_rules.h"
#include "belay/comm/symbols.h"

namespace belay::comm {
namespace {

struct Message {
  std::int64_t count = 0;
  Buffer from = Buffer::input;
  StepKind kind = StepKind::send;
  Moment sent{};  // of the sender, whose buffer the message is until used, unless posted
  std::vector<Symbol> symbols{};
  std::int64_t address = 0;  // in the sender's memory
};

// Messages from one rank to another on one lane, first in first out.
struct Channel {
  std::vector<Message> queue;
  std::size_t head = 0;
  std::size_t held = 0;  // gathered, not yet combined

  [[nodiscard]] std::size_t waiting() const { return queue.size() - head; }
};

struct Problem {
  std::string text;
};

class Check {
 public:
  Check(const Schedule& schedule, const std::vector<Program>& programs, const CheckOptions& options)
      : schedule_(schedule), programs_(programs), options_(options), ranks_(schedule.ranks) {
    std::size_t lanes = 0;
    for (int rank = 0; rank < ranks_; ++rank) {
      const Program& program = program_of_rank(rank);
      memories_.emplace_back(schedule, rank, options.shared);
      states_.emplace_back(program.steps.size(), State::open);
      lane_rounds_.emplace_back();
      for (const Program::Lane& lane : program.lanes) lane_rounds_.back().push_back(lane.begin);
      lanes = std::max(lanes, program.lanes.size());
    }
    channels_.resize(lanes * static_cast<std::size_t>(ranks_) * static_cast<std::size_t>(ranks_));
  }

  void run() {
    for (int rank = 0; rank < ranks_; ++rank) check_form(rank);
    bool moved = true;
    while (moved) {
      moved = false;
      for (int rank = 0; rank < ranks_; ++rank) {
        for (int lane = 0; lane < lanes_of(rank); ++lane) moved |= advance(rank, lane);
      }
    }
    check_finished();
    const std::string problem = problem_of_results(schedule_, memories_, options_.order_stable);
    if (!problem.empty()) throw Problem{problem};
  }

 private:
  // issued: a send that its peer has not used; held: a gathered message.
  enum class State : std::uint8_t { open, issued, held, done };

  // What a rank lends, and when in its order that is written.
  struct Lent {
    int rank;
    std::int64_t address;
    Moment moment;
  };

  // The step being run.
  struct At {
    int rank;
    Moment moment;
    const Step& step;
  };

  [[nodiscard]] const Program& program_of_rank(int rank) const {
    return programs_[static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] int lanes_of(int rank) const {
    return static_cast<int>(program_of_rank(rank).lanes.size());
  }
  SymbolicMemory& memory(int rank) { return memories_[static_cast<std::size_t>(rank)]; }
  State& state(int rank, std::int64_t step) {
    return states_[static_cast<std::size_t>(rank)][static_cast<std::size_t>(step)];
  }
  Channel& channel(int from, int to, int lane) {
    const auto p = static_cast<std::size_t>(ranks_);
    return channels_[(static_cast<std::size_t>(lane) * p + static_cast<std::size_t>(from)) * p +
                     static_cast<std::size_t>(to)];
  }
  [[noreturn]] static void refuse(const At& at, std::string_view what) {
    throw Problem{fmt::format("rank {}, lane {}, round {}, step {}: {}", at.rank, at.moment.lane,
                              at.moment.round, at.moment.step, what)};
  }

  void check_form(int rank) {
    const Program& program = program_of_rank(rank);
    for (int lane = 0; lane < lanes_of(rank); ++lane) {
      const Program::Lane& rounds = program.lanes[static_cast<std::size_t>(lane)];
      for (std::uint32_t r = rounds.begin; r < rounds.end; ++r) {
        const Program::Round& round = program.rounds[r];
        for (std::uint32_t s = round.begin; s < round.end; ++s) {
          const At at{rank, {lane, round.number, s}, program.steps[s]};
          const std::string problem = problem_of_step(at.step, memory(rank), rank, ranks_);
          if (!problem.empty()) refuse(at, problem);
        }
      }
    }
  }

  bool advance(int rank, int lane) {
    const Program& program = program_of_rank(rank);
    std::uint32_t& current =
        lane_rounds_[static_cast<std::size_t>(rank)][static_cast<std::size_t>(lane)];
    bool moved = false;
    while (current < program.lanes[static_cast<std::size_t>(lane)].end) {
      const Program::Round& round = program.rounds[current];
      bool complete = true;
      blocked_.clear();
      bool gathers_open = false;
      for (std::uint32_t s = round.begin; s < round.end; ++s) {
        const At at{rank, {lane, round.number, s}, program.steps[s]};
        State& now = state(rank, s);
        const State before = now;
        const bool ready = at.step.kind != StepKind::combine || !gathers_open;
        if (now == State::open && ready) now = attempt(at);
        if (is_held(at.step.kind)) {
          gathers_open |= now == State::open;
        } else if (at.step.kind == StepKind::combine) {
          if (now == State::done) release_gathers(rank, lane, round, s);
          // A later combine waits for its turn.
          gathers_open = now != State::done;
        }
        if (now == State::open && at.step.peer >= 0) blocked_.push_back(key_of(at.step));
        moved |= now != before;
        complete &= state(rank, s) == State::done;
      }
      if (!complete) return moved;
      ++current;
    }
    return moved;
  }

  // Messages of one direction between the same ranks keep their order.
  static int key_of(const Step& step) { return 2 * step.peer + (sends(step.kind) ? 1 : 0); }

  State attempt(const At& at) {
    const Step& step = at.step;
    if (step.kind == StepKind::copy) {
      run_copy(at);
      return State::done;
    }
    if (step.kind == StepKind::combine) {
      run_combine(at);
      return State::done;
    }
    if (std::find(blocked_.begin(), blocked_.end(), key_of(step)) != blocked_.end()) {
      return State::open;
    }
    if (sends(step.kind)) return run_send(at);
    Channel& from = channel(step.peer, at.rank, at.moment.lane);
    if (is_held(step.kind)) {
      if (from.waiting() <= from.held) return State::open;
      check_message(at, from.queue[from.head + from.held]);
      ++from.held;
      return State::held;
    }
    if (from.waiting() == 0 || from.held > 0) return State::open;
    check_message(at, from.queue[from.head]);
    run_receive(at, from.queue[from.head]);
    consume(step.peer, from);
    return State::done;
  }

  State run_send(const At& at) {
    const Step& step = at.step;
    Channel& to = channel(at.rank, step.peer, at.moment.lane);
    if (to.waiting() >= static_cast<std::size_t>(options_.capacity)) return State::open;
    Message message{step.count, step.src.buffer, step.kind, at.moment, {}};
    const std::int64_t address = memory(at.rank).address(step.src);
    message.address = address;
    if (step.kind == StepKind::lend) {
      to.queue.push_back(std::move(message));
      return State::issued;
    }
    for (std::int64_t i = 0; i < step.count; ++i) {
      Symbol symbol;
      read(at, address + i, symbol);
      if (step.src.buffer == Buffer::output) check_complete(at, symbol);
      message.symbols.push_back(symbol);
    }
    const bool posted = message.kind == StepKind::post;
    to.queue.push_back(std::move(message));
    return posted ? State::done : State::issued;
  }

  void check_message(const At& at, const Message& message) {
    if (message.count != at.step.count) {
      refuse(at, fmt::format("expects {} elements from rank {}, which sends {}", at.step.count,
                             at.step.peer, message.count));
    }
    if ((message.kind == StepKind::lend) != (at.step.kind == StepKind::fill)) {
      refuse(at, fmt::format("takes a message from rank {} for what it is not", at.step.peer));
    }
    if (message.count > 0 && is_wide(message.from) != is_wide(at.step.src.buffer)) {
      refuse(at, fmt::format("expects another element type from rank {}", at.step.peer));
    }
  }

  void consume(int sender, Channel& from) {
    const Message& message = from.queue[from.head];
    if (message.kind != StepKind::post) state(sender, message.sent.step) = State::done;
    if (++from.head == from.queue.size()) {
      from.queue.clear();
      from.head = 0;
    }
  }

  void run_receive(const At& at, const Message& message) {
    const Step& step = at.step;
    SymbolicMemory& own = memory(at.rank);
    const std::int64_t base = own.address(step.base);
    const std::int64_t dst = own.address(step.dst);
    for (std::int64_t i = 0; i < step.count; ++i) {
      Symbol value = message.symbols[static_cast<std::size_t>(i)];
      if (step.kind == StepKind::receive_reduce) {
        Symbol held;
        read(at, base + i, held);
        value = step.message_first ? sum_of(at, value, held) : sum_of(at, held, value);
        if (step.dst.buffer == Buffer::output) check_complete(at, value);
      }
      write(at, dst + i, value);
    }
  }

  void run_copy(const At& at) {
    const Step& step = at.step;
    SymbolicMemory& own = memory(at.rank);
    const std::int64_t src = own.address(step.src);
    const std::int64_t dst = own.address(step.dst);
    // Values that lie where they should are left alone.
    if (src == dst && !is_wide(step.src.buffer) && !is_wide(step.dst.buffer)) return;
    for (std::int64_t i = 0; i < step.count; ++i) {
      Symbol value;
      read(at, src + i, value);
      if (step.dst.buffer == Buffer::output) check_complete(at, value);
      write(at, dst + i, value);
    }
  }

  // The gathers and fills of a combine: those before it in its round, back to the previous one.
  template <class Body>
  void for_gathers(int rank, const Program::Round& round, std::int64_t combine, Body body) {
    const Program& program = program_of_rank(rank);
    auto first = static_cast<std::uint32_t>(combine);
    while (first > round.begin && program.steps[first - 1].kind != StepKind::combine) --first;
    for (std::uint32_t s = first; s < static_cast<std::uint32_t>(combine); ++s) {
      if (is_held(program.steps[s].kind)) body(program.steps[s], s);
    }
  }

  void run_combine(const At& at) {
    const Step& step = at.step;
    SymbolicMemory& own = memory(at.rank);
    const Program& program = program_of_rank(at.rank);
    const std::uint32_t current =
        lane_rounds_[static_cast<std::size_t>(at.rank)][static_cast<std::size_t>(at.moment.lane)];
    std::vector<const Message*> messages;
    std::vector<Lent> lent;
    std::vector<std::size_t> taken(static_cast<std::size_t>(ranks_), 0);
    for_gathers(at.rank, program.rounds[current], at.moment.step, [&](const Step& held, auto) {
      const Channel& from = channel(held.peer, at.rank, at.moment.lane);
      const std::size_t nth = taken[static_cast<std::size_t>(held.peer)]++;
      const Message& message = from.queue[from.head + nth];
      if (held.kind == StepKind::fill) {
        if (held.count != step.count || step.dst.buffer != Buffer::output) {
          refuse(at, "fills messages of another size or type than its result");
        }
        // A send of what the combine itself has read before is no other step.
        const Message* const read = nth > 0 ? &from.queue[from.head + nth - 1] : nullptr;
        Moment moment = message.sent;
        if (read != nullptr && read->address == message.address &&
            read->sent.round == moment.round) {
          moment.step = read->sent.step;
        }
        lent.push_back({held.peer, message.address, moment});
        return;
      }
      if (held.count != step.count || is_wide(held.src.buffer) != is_wide(step.base.buffer)) {
        refuse(at, "combines messages of different sizes or types");
      }
      messages.push_back(&message);
    });
    if (step.position < 0 || step.position > static_cast<int>(messages.size())) {
      refuse(at, "puts its own contribution beyond the others");
    }
    std::vector<Symbol> parts(messages.size() + 1);
    for (std::int64_t i = 0; i < step.count; ++i) {
      for (std::size_t part = 0, next = 0; part < parts.size(); ++part) {
        if (static_cast<int>(part) == step.position) {
          read(at, own.address(step.base) + i, parts[part]);
        } else {
          parts[part] = messages[next++]->symbols[static_cast<std::size_t>(i)];
        }
      }
      const Symbol sum = tree_sum(at, parts, 0, parts.size());
      if (step.dst.buffer == Buffer::output) check_complete(at, sum);
      write(at, own.address(step.dst) + i, sum);
      for (const Lent& each : lent) {
        if (!memory(each.rank).write(each.address + i, each.moment, sum)) {
          refuse(at, fmt::format("writes to what rank {} reads or writes in no order", each.rank));
        }
      }
    }
  }

  void release_gathers(int rank, int lane, const Program::Round& round, std::int64_t combine) {
    for_gathers(rank, round, combine, [&](const Step& gather, std::int64_t s) {
      if (state(rank, s) != State::held) return;
      Channel& from = channel(gather.peer, rank, lane);
      state(rank, s) = State::done;
      --from.held;
      consume(gather.peer, from);
    });
  }

  Symbol tree_sum(const At& at, const std::vector<Symbol>& parts, std::size_t first,
                  std::size_t last) {
    if (last - first == 1) return parts[first];
    const std::size_t middle = first + std::bit_floor(last - first - 1);
    return sum_of(at, tree_sum(at, parts, first, middle), tree_sum(at, parts, middle, last));
  }

  static Symbol sum_of(const At& at, const Symbol& first, const Symbol& second) {
    Symbol sum;
    if (!add_up(first, second, sum)) {
      refuse(at, fmt::format("adds element {} to element {}, or a contribution twice",
                             second.element, first.element));
    }
    return sum;
  }

  void read(const At& at, std::int64_t address, Symbol& symbol) {
    if (!memory(at.rank).read(address, at.moment, symbol)) {
      refuse(at, "reads what an unordered step writes");
    }
    if (symbol.element < 0) refuse(at, "reads what has not been written");
  }

  void write(const At& at, std::int64_t address, const Symbol& symbol) {
    if (!memory(at.rank).write(address, at.moment, symbol)) {
      refuse(at, "writes what an unordered step reads or writes");
    }
  }

  void check_complete(const At& at, const Symbol& symbol) const {
    if (reduces(schedule_.collective) && symbol.contributions() != ranks_) {
      refuse(at,
             fmt::format("rounds a partial result, of {} contributions", symbol.contributions()));
    }
  }

  void check_finished() {
    for (int rank = 0; rank < ranks_; ++rank) {
      const Program& program = program_of_rank(rank);
      for (int lane = 0; lane < lanes_of(rank); ++lane) {
        const std::uint32_t current =
            lane_rounds_[static_cast<std::size_t>(rank)][static_cast<std::size_t>(lane)];
        if (current == program.lanes[static_cast<std::size_t>(lane)].end) continue;
        const Program::Round& round = program.rounds[current];
        for (std::uint32_t s = round.begin; s < round.end; ++s) {
          if (state(rank, s) == State::done) continue;
          refuse({rank, {lane, round.number, s}, program.steps[s]},
                 fmt::format("waits for rank {} for ever", program.steps[s].peer));
        }
      }
    }
    for (int from = 0; from < ranks_; ++from) {
      for (int lane = 0; lane < lanes_of(from); ++lane) {
        for (int to = 0; to < ranks_; ++to) {
          if (channel(from, to, lane).waiting() == 0) continue;
          throw Problem{fmt::format("rank {} never receives a message from rank {}", to, from)};
        }
      }
    }
  }

  const Schedule& schedule_;
  const std::vector<Program>& programs_;
  const CheckOptions& options_;
  int ranks_;
  std::vector<SymbolicMemory> memories_;
  std::vector<std::vector<State>> states_;
  std::vector<std::vector<std::uint32_t>> lane_rounds_;
  std::vector<Channel> channels_;
  std::vector<int> blocked_;
};

}  // namespace

std::string check_programs(const Schedule& schedule, const std::vector<Program>& programs,
                           const CheckOptions& options) {
  if (schedule.ranks > kMostSymbolicRanks) {
    return fmt::format("{} ranks are more than the {} that can be checked", schedule.ranks,
                       kMostSymbolicRanks);
  }
  try {
    Check(schedule, programs, options).run();
  } catch (const Problem& problem) {
    return problem.text;
  }
  return {};
}

std::string check_schedule(const Schedule& schedule, const CheckOptions& options) {
  std::vector<Program> programs;
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    programs.push_back(program_of(schedule, rank));
  }
  return check_programs(schedule, programs, options);
}

}  // namespace belay::comm
