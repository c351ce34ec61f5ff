#include "belay/comm/simulator.h"

#include <algorithm>
#include <cmath>
#include <queue>
#include <utility>

namespace belay::comm {
namespace {

// Picoseconds: whole numbers, so that times do not depend on the order of additions.
using Time = std::uint64_t;

Time to_time(double seconds) {
  return static_cast<Time>(std::llround(seconds * 1e12));
}

struct Message {
  std::int32_t from = 0;  // lane index of the sender, of the receiver
  std::int32_t to = 0;
  std::int32_t sender = 0;  // ranks
  std::int32_t receiver = 0;
  Time ready = 0;
  double bytes = 0;
  bool posted = false;
  StepKind kind = StepKind::receive;  // of the step that takes it
};

struct Event {
  Time time = 0;
  std::uint64_t order = 0;  // of events at one time: as they were made
  std::uint32_t message = 0;

  bool operator>(const Event& other) const {
    return time != other.time ? time > other.time : order > other.order;
  }
};

class Simulation {
 public:
  Simulation(const Schedule& schedule, const MachineModel& model, int element, int wide)
      : schedule_(schedule),
        model_(model),
        element_(element),
        wide_(wide),
        lanes_(static_cast<int>(schedule.lanes.size())) {
    const auto ranks = static_cast<std::size_t>(schedule.ranks);
    states_.resize(ranks * static_cast<std::size_t>(lanes_));
    rank_free_.assign(ranks, 0);
    unit_free_.assign(ranks, 0);
    out_free_.assign(ranks, 0);
    in_free_.assign(ranks, 0);
    int domains = 1;
    for (const int domain : model.domain_of) domains = std::max(domains, domain + 1);
    domain_out_free_.assign(static_cast<std::size_t>(domains), 0);
    domain_in_free_.assign(static_cast<std::size_t>(domains), 0);
  }

  SimulatedTime run() {
    for (int rank = 0; rank < schedule_.ranks; ++rank) {
      for (int lane = 0; lane < lanes_; ++lane) start_rounds(rank, lane, 0);
    }
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      transfer(event);
    }
    result_.complete = true;
    for (const State& state : states_) {
      result_.complete = result_.complete && state.finished;
      result_.seconds = std::max(result_.seconds, static_cast<double>(state.latest) * 1e-12);
    }
    return result_;
  }

 private:
  // A sender whose message has been gathered: its lane's index, and rank.
  struct Waiting {
    std::int32_t lane = 0;
    std::int32_t rank = 0;
  };

  // A rank's lane: its current round.
  struct State {
    std::int64_t round = -1;
    int open = 0;       // steps that are not done
    int gathers = 0;    // that have not arrived
    Time gathered = 0;  // when the last of them has
    bool finished = false;
    Time start = 0;
    Time latest = 0;  // end of a step of the round
    std::vector<Step> steps;
    std::vector<bool> matched;
    std::vector<std::uint32_t> inbox;  // messages for later rounds
    std::vector<Waiting> waiting;
  };

  State& state_of(int rank, int lane) {
    return states_[static_cast<std::size_t>(rank) * static_cast<std::size_t>(lanes_) +
                   static_cast<std::size_t>(lane)];
  }
  [[nodiscard]] int domain(int rank) const {
    return model_.domain_of.empty() ? 0 : model_.domain_of[static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] double bytes_of(const Step& step, Buffer buffer) const {
    return static_cast<double>(step.count) * (is_wide(buffer) ? wide_ : element_);
  }

  // Begins the next round, and the ones after it if that has nothing to wait for.
  void start_rounds(int rank, int lane, Time now) {
    State& state = state_of(rank, lane);
    const Pattern& pattern = *schedule_.lanes[static_cast<std::size_t>(lane)];
    const std::int64_t rounds = pattern.rounds();
    while (state.open == 0) {
      state.start = state.latest = state.gathered = now;
      state.steps.clear();
      do {
        if (++state.round >= rounds) {
          state.finished = true;
          return;
        }
        pattern.append(rank, state.round, state.steps);
      } while (state.steps.empty());
      state.matched.assign(state.steps.size(), false);
      state.open = static_cast<int>(state.steps.size());
      state.gathers =
          static_cast<int>(std::count_if(state.steps.begin(), state.steps.end(),
                                         [](const Step& step) { return is_held(step.kind); }));
      for (std::size_t s = 0; s < state.steps.size(); ++s) begin_step(rank, lane, state, s);
      now = state.latest;
    }
  }

  void begin_step(int rank, int lane, State& state, std::size_t index) {
    const Step& step = state.steps[index];
    switch (step.kind) {
      case StepKind::copy:
        if (!is_wide(step.src.buffer) && step.dst.buffer == Buffer::output &&
            schedule_.collective != Collective::all_to_all && schedule_.ranks > 1) {
          // In place, as the engine's buffers are.
          done(state, state.start);
        } else {
          done(state,
               work_on_rank(rank, state.start, model_.copy(bytes_of(step, step.src.buffer))));
        }
        return;
      case StepKind::send:
      case StepKind::lend:
      case StepKind::post: {
        const bool posted = step.kind == StepKind::post;
        const double bytes = bytes_of(step, step.src.buffer);
        Time ready = state.start;
        if (posted) {
          ready = work_on_rank(rank, ready, model_.post(bytes));
          done(state, ready);
        }
        deliver({rank * lanes_ + lane, step.peer * lanes_ + lane, rank, step.peer, ready, bytes,
                 posted, StepKind::receive});
        return;
      }
      case StepKind::combine:
        // Waits for gathers; a rank without others' contributions has none.
        if (state.gathers == 0) run_combines(rank, state);
        return;
      case StepKind::receive:
      case StepKind::receive_reduce:
      case StepKind::gather:
      case StepKind::fill:
        match(state, index);
        return;
    }
  }

  void done(State& state, Time when) {
    --state.open;
    state.latest = std::max(state.latest, when);
  }

  Time work_on_rank(int rank, Time from, double seconds) {
    Time& free = rank_free_[static_cast<std::size_t>(rank)];
    free = std::max(free, from) + to_time(seconds);
    return free;
  }

  void deliver(const Message& message) {
    ++result_.messages;
    result_.bytes += message.bytes;
    if (domain(message.sender) != domain(message.receiver)) {
      result_.crossing_bytes += message.bytes;
    }
    std::uint32_t index = 0;
    if (unused_.empty()) {
      index = static_cast<std::uint32_t>(messages_.size());
      messages_.push_back(message);
    } else {
      index = unused_.back();
      unused_.pop_back();
      messages_[index] = message;
    }
    State& state = states_[static_cast<std::size_t>(message.to)];
    for (std::size_t s = 0; s < state.steps.size(); ++s) {
      const Step& step = state.steps[s];
      if (state.matched[s] || step.peer != message.sender || !takes_message(step.kind)) continue;
      if (queued_before(state, message.sender)) break;
      meet(state, s, index);
      return;
    }
    state.inbox.push_back(index);
  }

  static bool takes_message(StepKind kind) {
    return kind == StepKind::receive || kind == StepKind::receive_reduce || is_held(kind);
  }

  bool queued_before(const State& state, int sender) const {
    return std::any_of(state.inbox.begin(), state.inbox.end(),
                       [&](std::uint32_t index) { return messages_[index].sender == sender; });
  }

  void match(State& state, std::size_t index) {
    const int peer = state.steps[index].peer;
    for (std::size_t i = 0; i < state.inbox.size(); ++i) {
      const std::uint32_t message = state.inbox[i];
      if (messages_[message].sender != peer) continue;
      state.inbox.erase(state.inbox.begin() + static_cast<std::ptrdiff_t>(i));
      meet(state, index, message);
      return;
    }
  }

  void meet(State& state, std::size_t index, std::uint32_t message) {
    state.matched[index] = true;
    Message& met = messages_[message];
    met.kind = state.steps[index].kind;
    events_.push({std::max(met.ready, state.start), next_order_++, message});
  }

  void transfer(const Event& event) {
    const Message message = messages_[event.message];
    unused_.push_back(event.message);
    const bool crosses = domain(message.sender) != domain(message.receiver);
    const LevelModel& level = crosses ? model_.outer : model_.inner;
    Time end = 0;
    if (model_.rank_moves_data) {
      // A gathered message is read by the combine.
      double seconds = 0;
      if (message.kind == StepKind::receive) seconds = level.move(message.bytes);
      if (message.kind == StepKind::receive_reduce) seconds = level.reduce(message.bytes);
      end = work_on_rank(message.receiver, event.time, seconds);
      if (crosses) end = std::max(end, domain_links(message, event.time));
    } else {
      end = over_links(message, level, crosses, event.time);
    }
    const int lane = message.to % lanes_;
    State& receiver = states_[static_cast<std::size_t>(message.to)];
    if (is_held(message.kind)) {
      // The combine releases it.
      receiver.gathered = std::max(receiver.gathered, end);
      if (!message.posted) receiver.waiting.push_back({message.from, message.sender});
      --receiver.open;
      if (--receiver.gathers == 0) {
        run_combines(message.receiver, receiver);
        release_senders(receiver);
      }
    } else {
      done(receiver, end);
      if (!message.posted) finish_send(message.from, message.sender, end);
    }
    if (receiver.open == 0) start_rounds(message.receiver, lane, receiver.latest);
  }

  void finish_send(int lane_index, int rank, Time when) {
    State& sender = states_[static_cast<std::size_t>(lane_index)];
    done(sender, when);
    if (sender.open == 0) start_rounds(rank, lane_index % lanes_, sender.latest);
  }

  // What was gathered has been used.
  void release_senders(State& receiver) {
    released_.swap(receiver.waiting);
    receiver.waiting.clear();
    const Time when = receiver.gathered;
    // finish_send may begin rounds, but nothing that releases.
    for (const Waiting& each : released_) finish_send(each.lane, each.rank, when);
    released_.clear();
  }

  void run_combines(int rank, State& state) {
    int parts = 1;
    int fills = 0;
    for (const Step& step : state.steps) {
      if (step.kind == StepKind::gather) ++parts;
      if (step.kind == StepKind::fill) ++fills;
      if (step.kind != StepKind::combine) continue;
      const double bytes = bytes_of(step, step.base.buffer);
      // What is written to has been read before, so it costs about as much as a part.
      double seconds = model_.extra_part_s_per_byte * bytes * (std::max(parts - 2, 0) + fills);
      if (model_.rank_moves_data) {
        seconds += model_.inner.reduce(bytes);
      } else {
        seconds += std::max(model_.inner.reduce(bytes) - model_.inner.move(bytes), 0.0);
      }
      state.gathered = work_on_rank(rank, state.gathered, seconds);
      done(state, state.gathered);
      parts = 1;
      fills = 0;
    }
  }

  Time domain_links(const Message& message, Time from) {
    if (model_.domain_link_s_per_byte <= 0) return from;
    Time& out = domain_out_free_[static_cast<std::size_t>(domain(message.sender))];
    Time& in = domain_in_free_[static_cast<std::size_t>(domain(message.receiver))];
    const Time begin = std::max({from, out, in});
    const Time end = begin + to_time(message.bytes * model_.domain_link_s_per_byte);
    out = in = end;
    return end;
  }

  Time over_links(const Message& message, const LevelModel& level, bool crosses, Time from) {
    const auto sender = static_cast<std::size_t>(message.sender);
    const auto receiver = static_cast<std::size_t>(message.receiver);
    const Time duration = to_time(level.move(message.bytes));
    const Time latency = to_time(level.move(0));
    Time end = from + duration;
    if (crosses || !model_.full_mesh) {
      const Time begin = std::max({from, out_free_[sender], in_free_[receiver]});
      end = begin + duration;
      // The latency of one message passes while the link carries the next.
      out_free_[sender] = in_free_[receiver] =
          end - std::min(latency, duration) + to_time(model_.message_gap_s);
    }
    if (crosses) end = std::max(end, domain_links(message, from) + latency);
    if (message.kind == StepKind::receive_reduce) {
      Time& unit = unit_free_[receiver];
      const double extra = level.reduce(message.bytes) - level.move(message.bytes);
      unit = std::max(unit, end) + to_time(std::max(extra, 0.0));
      end = unit;
    }
    return end;
  }

  const Schedule& schedule_;
  const MachineModel& model_;
  int element_;
  int wide_;
  int lanes_;
  std::vector<State> states_;
  std::vector<Message> messages_;
  std::vector<std::uint32_t> unused_;
  std::vector<Waiting> released_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::uint64_t next_order_ = 0;
  std::vector<Time> rank_free_;
  std::vector<Time> unit_free_;
  std::vector<Time> out_free_;
  std::vector<Time> in_free_;
  std::vector<Time> domain_out_free_;
  std::vector<Time> domain_in_free_;
  SimulatedTime result_;
};

}  // namespace

Curve Curve::line(double alpha_s, double beta_s_per_byte) {
  return through({0, 1e9}, {alpha_s, alpha_s + 1e9 * beta_s_per_byte});
}

Curve Curve::through(std::vector<double> bytes, std::vector<double> seconds) {
  Curve curve;
  curve.bytes_ = std::move(bytes);
  curve.seconds_ = std::move(seconds);
  return curve;
}

double Curve::operator()(double bytes) const {
  const auto above = std::upper_bound(bytes_.begin(), bytes_.end(), bytes);
  const auto last = static_cast<std::ptrdiff_t>(bytes_.size()) - 1;
  const auto at =
      static_cast<std::size_t>(std::clamp<std::ptrdiff_t>(above - bytes_.begin(), 1, last));
  const double share = (bytes - bytes_[at - 1]) / (bytes_[at] - bytes_[at - 1]);
  return seconds_[at - 1] + share * (seconds_[at] - seconds_[at - 1]);
}

SimulatedTime simulate(const Schedule& schedule, const MachineModel& model, int element_bytes,
                       int wide_bytes) {
  return Simulation(schedule, model, element_bytes, wide_bytes).run();
}

}  // namespace belay::comm
