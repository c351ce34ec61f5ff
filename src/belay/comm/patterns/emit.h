#pragma once
// Short forms for writing steps. Steps of no elements are left out, on both sides alike.

#include <cstdint>
#include <vector>

#include "belay/comm/schedule.h"

namespace belay::comm {

class Emit {
 public:
  explicit Emit(std::vector<Step>& steps) : steps_(steps) {}

  void send(int peer, Place src, std::int64_t count) { message(StepKind::send, peer, src, count); }
  void post(int peer, Place src, std::int64_t count) { message(StepKind::post, peer, src, count); }
  void lend(int peer, Place dst, std::int64_t count) { message(StepKind::lend, peer, dst, count); }
  // `from`: the sender's buffer.
  void receive(int peer, Buffer from, Place dst, std::int64_t count) {
    if (count == 0) return;
    Step step{.kind = StepKind::receive, .peer = peer, .count = count};
    step.src.buffer = from;
    step.dst = dst;
    steps_.push_back(step);
  }
  void receive_reduce(int peer, Buffer from, Place base, Place dst, std::int64_t count,
                      bool message_first) {
    if (count == 0) return;
    Step step{.kind = StepKind::receive_reduce, .message_first = message_first, .peer = peer};
    step.count = count;
    step.src.buffer = from;
    step.base = base;
    step.dst = dst;
    steps_.push_back(step);
  }
  void gather(int peer, Buffer from, std::int64_t count) {
    if (count == 0) return;
    Step step{.kind = StepKind::gather, .peer = peer, .count = count};
    step.src.buffer = from;
    steps_.push_back(step);
  }
  void fill(int peer, std::int64_t count) {
    if (count == 0) return;
    Step step{.kind = StepKind::fill, .peer = peer, .count = count};
    step.src.buffer = Buffer::output;
    steps_.push_back(step);
  }
  void combine(int position, Place base, Place dst, std::int64_t count) {
    if (count == 0) return;
    Step step{.kind = StepKind::combine, .position = position, .count = count};
    step.base = base;
    step.dst = dst;
    steps_.push_back(step);
  }
  void copy(Place src, Place dst, std::int64_t count) {
    if (count == 0) return;
    Step step{.kind = StepKind::copy, .count = count};
    step.src = src;
    step.dst = dst;
    steps_.push_back(step);
  }
  // The one message that may be empty.
  void signal(int peer) { steps_.push_back({.kind = StepKind::post, .peer = peer}); }
  void await_signal(int peer) {
    Step step{.kind = StepKind::receive, .peer = peer};
    step.dst.buffer = Buffer::output;
    steps_.push_back(step);
  }

 private:
  void message(StepKind kind, int peer, Place src, std::int64_t count) {
    if (count == 0) return;
    Step step{.kind = kind, .peer = peer, .count = count};
    step.src = src;
    steps_.push_back(step);
  }

  std::vector<Step>& steps_;
};

// a modulo p for any sign of a.
constexpr int wrap(std::int64_t a, int p) {
  return static_cast<int>(((a % p) + p) % p);
}

}  // namespace belay::comm
