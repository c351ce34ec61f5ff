#include "belay/comm/link_probe.h"

#include <algorithm>
#include <cstring>

#include "belay/base/check.h"
#include "belay/comm/ticks.h"

namespace belay::comm {
namespace {

std::uint64_t now_ns() {
  return clock_ns(CLOCK_MONOTONIC);
}

void keep_least(double& least, double value) {
  if (least == 0 || value < least) least = value;
}

// One rank's part: `to` and `from` may be -1, or the same rank.
class Part {
 public:
  Part(Transport& transport, Watch& watch, const Signature& signature, int to, int from)
      : transport_(transport), watch_(watch), signature_(signature), to_(to), from_(from) {}

  ProbeTimes run(std::byte* out, std::byte* in, std::size_t bytes, int repetitions) {
    int answered = to_ < 0 ? repetitions : 0;
    int received = from_ < 0 ? repetitions : 0;
    bool waiting = false;
    std::uint64_t sent_ns = 0;
    ProbeTimes times;
    while (answered < repetitions || received < repetitions) {
      bool moved = false;
      if (!waiting && answered < repetitions) {
        sent_ns = now_ns();
        waiting = moved = send(out, bytes, sent_ns);
      }
      if (waiting && take_answer()) {
        keep_least(times.there_back_s, static_cast<double>(now_ns() - sent_ns) * 1e-9);
        waiting = false;
        ++answered;
        moved = true;
      }
      if (received < repetitions && take_message(in, bytes)) {
        std::uint64_t stamp = 0;
        std::memcpy(&stamp, in, sizeof(stamp));
        // Clocks of hosts differ; the caller knows whether this means anything.
        const auto passed = static_cast<std::int64_t>(now_ns() - stamp);
        keep_least(times.one_way_s, static_cast<double>(std::max<std::int64_t>(passed, 1)) * 1e-9);
        ++received;
        moved = true;
      }
      if (moved) {
        watch_.progress();
      } else {
        watch_.idle(answered < repetitions ? to_ : from_);
      }
    }
    return times;
  }

 private:
  bool send(std::byte* out, std::size_t bytes, std::uint64_t stamp) {
    std::memcpy(out, &stamp, sizeof(stamp));
    static_cast<void>(transport_.used(to_, 0));
    return (bytes <= transport_.post_bytes() && bytes <= kSmall
                ? transport_.post(to_, 0, out, bytes, signature_)
                : transport_.send(to_, 0, out, bytes, signature_)) != 0;
  }

  // An answer is empty.
  bool take_answer() {
    if (!look(to_) || message_.bytes > 0) return false;
    static_cast<void>(transport_.used(to_, 0));
    transport_.release(to_, 0);
    return true;
  }

  bool take_message(std::byte* in, std::size_t bytes) {
    if (to_answer_ == 0) {
      if (!look(from_) || message_.bytes == 0) return false;
      if (message_.bytes != bytes) watch_.mismatch(from_, message_.signature);
      std::memcpy(in, message_.data, bytes);
      transport_.release(from_, 0);
      to_answer_ = 1;
    }
    if (transport_.post(from_, 0, in, 0, signature_) == 0) return false;
    to_answer_ = 0;
    return true;
  }

  bool look(int peer) {
    if (!transport_.peek(peer, 0, 0, message_)) return false;
    if (message_.signature != signature_) watch_.mismatch(peer, message_.signature);
    return true;
  }

  static constexpr std::size_t kSmall = 256;
  Transport& transport_;
  Watch& watch_;
  const Signature& signature_;
  int to_;
  int from_;
  int to_answer_ = 0;
  Message message_;
};

}  // namespace

LinkProbe::LinkProbe(Communicator& communicator, std::size_t most_bytes)
    : communicator_(communicator),
      most_bytes_(std::max(most_bytes, sizeof(std::uint64_t))),
      out_(static_cast<std::byte*>(communicator.allocate(most_bytes_))),
      in_(static_cast<std::byte*>(communicator.allocate(most_bytes_))) {}

LinkProbe::~LinkProbe() {
  communicator_.deallocate(out_);
  communicator_.deallocate(in_);
}

ProbeTimes LinkProbe::run(std::span<const int> to, std::size_t bytes, int repetitions) {
  BELAY_CHECK(bytes >= sizeof(std::uint64_t) && bytes <= most_bytes_ &&
              std::ssize(to) == communicator_.size());
  const auto own = static_cast<std::size_t>(communicator_.rank());
  const auto sender = std::find(to.begin(), to.end(), communicator_.rank());
  const int from = sender == to.end() ? -1 : static_cast<int>(sender - to.begin());
  ProbeTimes times;
  communicator_.run_exchange(bytes, [&](Transport& transport, Watch& watch, const Signature& call) {
    times = Part(transport, watch, call, to[own], from).run(out_, in_, bytes, repetitions);
  });
  return times;
}

}  // namespace belay::comm
