#include "belay/comm/fault_transport.h"

#include <algorithm>
#include <csignal>
#include <thread>
#include <utility>

#include "belay/base/error.h"
#include "belay/base/log.h"

namespace belay::comm {
namespace {

constexpr auto kNever = Transport::Clock::time_point::max();

Transport::Clock::duration to_duration(double seconds) {
  constexpr double kMost = 1e6;  // what is slower never comes; and no overflow
  return std::chrono::duration_cast<Transport::Clock::duration>(
      std::chrono::duration<double>(std::min(seconds, kMost)));
}

}  // namespace

FaultTransport::FaultTransport(Transport& inner, FaultScript script, RankIs rank_is)
    : inner_(inner),
      script_(std::move(script)),
      rank_is_(rank_is),
      incoming_(static_cast<std::size_t>(inner.size()) * kMostLanes),
      free_at_(static_cast<std::size_t>(inner.size())),
      struck_(script_.faults().size()) {}

void FaultTransport::set_script(FaultScript script) {
  script_ = std::move(script);
  struck_.assign(script_.faults().size(), false);
}

double FaultTransport::seconds() const {
  return std::chrono::duration<double>(Clock::now() - begin_).count();
}

void FaultTransport::start_transfer(int peer, Incoming& incoming, const Message& message) {
  const LinkState link = script_.link(peer, rank(), message.signature.sequence, seconds());
  Clock::time_point& free_at = free_at_[static_cast<std::size_t>(peer)];
  Clock::time_point& there = incoming.there[incoming.seen % kChannelSlots];
  ++incoming.seen;
  const Clock::time_point now = Clock::now();
  if (link.drop) {
    there = kNever;
    return;
  }
  free_at =
      std::max(free_at, now) + to_duration(static_cast<double>(message.bytes) / link.bandwidth);
  there = free_at + to_duration(link.delay_s);
}

bool FaultTransport::peek(int peer, int lane, int nth, Message& message) {
  if (!inner_.peek(peer, lane, nth, message)) return false;
  Incoming& incoming =
      incoming_[static_cast<std::size_t>(peer) * kMostLanes + static_cast<std::size_t>(lane)];
  const std::uint64_t number = incoming.released + static_cast<std::uint64_t>(nth);
  // They came in order, so those before have been there too.
  for (Message earlier = message; incoming.seen <= number;) {
    const std::uint64_t ahead = incoming.seen - incoming.released;
    if (!inner_.peek(peer, lane, static_cast<int>(ahead), earlier)) return false;
    start_transfer(peer, incoming, earlier);
  }
  const Clock::time_point there = incoming.there[number % kChannelSlots];
  const Clock::time_point now = Clock::now();
  if (there <= now) return true;
  if (there != kNever) due_ = due_ > now ? std::min(due_, there) : there;
  return false;
}

void FaultTransport::release(int peer, int lane) {
  ++incoming_[static_cast<std::size_t>(peer) * kMostLanes + static_cast<std::size_t>(lane)]
        .released;
  inner_.release(peer, lane);
}

void FaultTransport::enter(const Signature& call) {
  call_ = call.sequence;
  strike(call_);
  const double late = script_.late(rank(), call_, seconds());
  if (late > 0) std::this_thread::sleep_for(std::chrono::duration<double>(late));
  inner_.enter(call);
}

void FaultTransport::beat() {
  strike(call_);
  inner_.beat();
}

void FaultTransport::strike(std::uint64_t call) {
  for (std::size_t i = 0; i < struck_.size(); ++i) {
    const Fault& fault = script_.faults()[i];
    const bool kills = fault.kind == FaultKind::kill;
    if ((!kills && fault.kind != FaultKind::stop) || struck_[i] || fault.from != rank() ||
        !fault.span.contains(call, seconds())) {
      continue;
    }
    struck_[i] = true;
    if (rank_is_ == RankIs::process) {
      std::raise(kills ? SIGKILL : SIGSTOP);
      continue;
    }
    if (!kills) {
      while (!inner_.raised()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      fail(ExitCode::communication, "{}", inner_.reason());
    }
    fail(ExitCode::communication, "rank {} is killed in call #{}, as comm.inject says", rank(),
         call);
  }
}

std::unique_ptr<Transport> inject_faults(Transport& inner, const std::string& text,
                                         RankIs rank_is) {
  FaultScript script(text, inner.size());
  if (script.empty()) return nullptr;
  if (inner.rank() == 0) log::warn("faults are injected into communication: {}", text);
  return std::make_unique<FaultTransport>(inner, std::move(script), rank_is);
}

}  // namespace belay::comm
