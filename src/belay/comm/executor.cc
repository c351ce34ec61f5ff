#include "belay/comm/executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "belay/base/check.h"
#include "belay/comm/ticks.h"

namespace belay::comm {
PreparedProgram::PreparedProgram(Program program) : program_(std::move(program)) {
  const std::size_t count = program_.steps.size();
  previous_.assign(count, -1);
  gathers_.assign(count, 0);
  fills_.assign(count, 0);
  states_.assign(count, State::open);
  tickets_.assign(count, 0);
  asked_.assign(count, 0);
  views_.assign(count, nullptr);
  position_.assign(program_.lanes.size(), 0);
  std::size_t most_parts = 0;
  std::size_t most_copies = 0;
  for (const Program::Round& round : program_.rounds) {
    std::int32_t gathers = 0;
    std::int32_t fills = 0;
    for (std::uint32_t s = round.begin; s < round.end; ++s) {
      const Step& step = program_.steps[s];
      if (step.kind == StepKind::gather) ++gathers;
      if (step.kind == StepKind::fill) ++fills;
      if (step.kind == StepKind::combine) {
        gathers_[s] = std::exchange(gathers, 0);
        fills_[s] = std::exchange(fills, 0);
        most_parts = std::max(most_parts, static_cast<std::size_t>(gathers_[s]) + 1);
        most_copies = std::max(most_copies, static_cast<std::size_t>(fills_[s]));
      }
      for (std::uint32_t earlier = s; step.peer >= 0 && earlier-- > round.begin;) {
        const Step& other = program_.steps[earlier];
        if (other.peer == step.peer && sends(other.kind) == sends(step.kind)) {
          previous_[s] = static_cast<std::int32_t>(earlier);
          break;
        }
      }
    }
  }
  parts_.assign(most_parts, nullptr);
  copies_.assign(most_copies, nullptr);
}

void Executor::run(PreparedProgram& prepared, const Signature& signature,
                   const CallBuffers& buffers, bool whole) {
  signature_ = signature;
  arithmetic_ = {signature.dtype, signature.op, transport_.size()};
  buffers_ = buffers;
  narrow_size_ = size_of(signature.dtype);
  wide_size_ = size_of(accumulation_type(signature.dtype));
  watch_.begin(signature);
  const Program& program = prepared.program_;
  std::fill(prepared.states_.begin(), prepared.states_.end(), State::open);
  if (meter_ != nullptr) std::fill(prepared.asked_.begin(), prepared.asked_.end(), 0U);
  for (std::size_t lane = 0; lane < program.lanes.size(); ++lane) {
    prepared.position_[lane] = program.lanes[lane].begin;
  }
  const auto lanes = static_cast<std::uint32_t>(program.lanes.size());
  for (bool running = true; running;) {
    running = false;
    bool moved = false;
    for (std::uint32_t lane = 0; lane < lanes; ++lane) {
      if (prepared.position_[lane] == program.lanes[lane].end) continue;
      moved |= advance(prepared, lane);
      running |= prepared.position_[lane] != program.lanes[lane].end;
    }
    if (moved) {
      watch_.progress();
    } else if (running) {
      watch_.idle(waiting_for_);
    }
  }
  if (whole) transport_.finish(signature.sequence);
}

bool Executor::advance(PreparedProgram& prepared, std::uint32_t lane) {
  const Program& program = prepared.program_;
  std::uint32_t& position = prepared.position_[lane];
  bool moved = false;
  while (position != program.lanes[lane].end) {
    const Program::Round& round = program.rounds[position];
    bool complete = true;
    bool gathers_open = false;
    for (std::uint32_t s = round.begin; s < round.end; ++s) {
      State& state = prepared.states_[s];
      const Step& step = program.steps[s];
      if (state == State::open && !(step.kind == StepKind::combine && gathers_open)) {
        state = attempt(prepared, s, static_cast<int>(lane));
        moved |= state != State::open;
      } else if (state == State::sent &&
                 transport_.used(step.peer, static_cast<int>(lane)) >= prepared.tickets_[s]) {
        state = State::done;
        moved = true;
      }
      if (is_held(step.kind)) gathers_open |= state == State::open;
      // A later combine waits for its turn, so that messages are released in order.
      if (step.kind == StepKind::combine) gathers_open = state != State::done;
      if (state == State::open || state == State::sent) {
        complete = false;
        if (step.peer >= 0) waiting_for_ = step.peer;
      }
    }
    if (!complete) return moved;
    ++position;
  }
  return moved;
}

Executor::State Executor::attempt(PreparedProgram& prepared, std::uint32_t index, int lane) {
  const Step& step = prepared.program_.steps[index];
  if (step.kind == StepKind::copy) {
    copy(step);
    return State::done;
  }
  if (step.kind == StepKind::combine) {
    combine(prepared, index, lane);
    return State::done;
  }
  // Messages between the same two ranks keep their order.
  const std::int32_t previous = prepared.previous_[index];
  if (previous >= 0 && prepared.states_[static_cast<std::size_t>(previous)] == State::open) {
    return State::open;
  }
  if (!sends(step.kind)) return receive(prepared, index, lane);
  const std::size_t size = bytes(step.src.buffer, step.count);
  const bool post = step.kind == StepKind::post;
  const std::uint64_t ticket =
      post ? transport_.post(step.peer, lane, at(step.src), size, signature_)
           : transport_.send(step.peer, lane, at(step.src), size, signature_);
  if (ticket == 0) return State::open;
  prepared.tickets_[index] = ticket;
  return post ? State::done : State::sent;
}

bool Executor::fetch(const Step& step, int lane, int nth, Message& message) {
  if (!transport_.peek(step.peer, lane, nth, message)) return false;
  if (message.signature != signature_) watch_.mismatch(step.peer, message.signature);
  const std::size_t size = bytes(step.src.buffer, step.count);
  if (message.bytes != size) {
    watch_.give_up(
        fmt::format("rank {} sends {} bytes where {} are due", step.peer, message.bytes, size));
  }
  return true;
}

// What is too small to be metered keeps 0, and so does what is lent, which carries nothing.
void Executor::look_at_clock(PreparedProgram& prepared, std::uint32_t index) const {
  const Step& step = prepared.program_.steps[index];
  if (meter_ == nullptr || prepared.asked_[index] != 0 || step.kind == StepKind::fill ||
      bytes(step.src.buffer, step.count) < kMeteredBytes) {
    return;
  }
  prepared.asked_[index] = clock_ns(CLOCK_MONOTONIC);
}

void Executor::meter(const PreparedProgram& prepared, std::uint32_t index, const Message& message) {
  const std::uint64_t asked = prepared.asked_[index];
  if (meter_ == nullptr || asked == 0) return;
  meter_->received(prepared.program_.steps[index].peer, message.bytes, message.sent_ns, asked,
                   clock_ns(CLOCK_MONOTONIC));
}

Executor::State Executor::receive(PreparedProgram& prepared, std::uint32_t index, int lane) {
  const Step& step = prepared.program_.steps[index];
  Message message;
  const std::int32_t previous = prepared.previous_[index];
  const bool behind_held =
      previous >= 0 && prepared.states_[static_cast<std::size_t>(previous)] == State::held;
  if (is_held(step.kind)) {
    int nth = 0;
    for (std::int32_t s = previous;
         s >= 0 && prepared.states_[static_cast<std::size_t>(s)] == State::held;
         s = prepared.previous_[static_cast<std::size_t>(s)]) {
      ++nth;
    }
    look_at_clock(prepared, index);
    if (!fetch(step, lane, nth, message)) return State::open;
    prepared.views_[index] = message.data;
    meter(prepared, index, message);
    return State::held;
  }
  if (behind_held) return State::open;
  look_at_clock(prepared, index);
  if (!fetch(step, lane, 0, message)) return State::open;
  if (step.kind == StepKind::receive) {
    if (message.bytes > 0) std::memcpy(at(step.dst), message.data, message.bytes);
  } else {
    const Values base{at(step.base), is_wide(step.base.buffer)};
    const Values theirs{message.data, is_wide(step.src.buffer)};
    const Result dst{at(step.dst), step.dst.buffer == Buffer::output};
    reduce_pair(arithmetic_, step.message_first ? theirs : base, step.message_first ? base : theirs,
                dst, step.count);
  }
  transport_.release(step.peer, lane);
  meter(prepared, index, message);
  return State::done;
}

void Executor::combine(PreparedProgram& prepared, std::uint32_t index, int lane) {
  const std::vector<Step>& steps = prepared.program_.steps;
  const Step& step = steps[index];
  const auto gathers = static_cast<std::size_t>(prepared.gathers_[index]);
  const auto fills = static_cast<std::size_t>(prepared.fills_[index]);
  // They stand right before their combine, but for sends in between; the last comes first here.
  const auto for_held = [&](auto&& body) {
    std::uint32_t s = index;
    for (std::size_t left = gathers + fills; left > 0;) {
      if (!is_held(steps[--s].kind)) continue;
      --left;
      body(s);
    }
  };
  std::size_t part = gathers;
  std::size_t copy = fills;
  for_held([&](std::uint32_t s) {
    if (steps[s].kind == StepKind::fill) {
      // Lent memory is the sender's to give.
      prepared.copies_[--copy] = const_cast<void*>(prepared.views_[s]);
    } else {
      --part;
      prepared.parts_[static_cast<int>(part) >= step.position ? part + 1 : part] =
          prepared.views_[s];
    }
  });
  prepared.parts_[static_cast<std::size_t>(step.position)] = at(step.base);
  reduce_parts(arithmetic_, {prepared.parts_.data(), gathers + 1}, is_wide(step.base.buffer),
               {at(step.dst), step.dst.buffer == Buffer::output}, step.count,
               {prepared.copies_.data(), fills});
  for_held([&](std::uint32_t s) {
    prepared.states_[s] = State::done;
    transport_.release(steps[s].peer, lane);
  });
}

void Executor::copy(const Step& step) {
  const void* const src = at(step.src);
  void* const dst = at(step.dst);
  const bool from_wide = is_wide(step.src.buffer);
  if (from_wide && step.dst.buffer == Buffer::output) {
    complete_values(arithmetic_, src, dst, step.count);
  } else if (!from_wide && is_wide(step.dst.buffer)) {
    widen_values(arithmetic_, src, dst, step.count);
  } else if (src != dst) {
    std::memcpy(dst, src, bytes(step.src.buffer, step.count));
  }
}

void* Executor::at(Place place) const {
  void* base = nullptr;
  switch (place.buffer) {
    case Buffer::input:
      base = const_cast<void*>(buffers_.input);
      break;
    case Buffer::output:
      base = buffers_.output;
      break;
    case Buffer::work:
      base = buffers_.work;
      break;
    case Buffer::spare:
      base = buffers_.spare;
      break;
  }
  if (base == nullptr) return nullptr;
  return static_cast<std::byte*>(base) + bytes(place.buffer, place.offset);
}

std::size_t Executor::bytes(Buffer buffer, std::int64_t count) const {
  return static_cast<std::size_t>(count) * (is_wide(buffer) ? wide_size_ : narrow_size_);
}

}  // namespace belay::comm
