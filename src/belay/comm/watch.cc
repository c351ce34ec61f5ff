#include "belay/comm/watch.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <thread>
#include <utility>
#include <vector>

#include "belay/base/error.h"
#include "belay/comm/ticks.h"

namespace belay::comm {
namespace {

// Spinning this often takes a few microseconds: longer than a message between two running ranks.
constexpr std::uint64_t kSpins = 2000;
constexpr std::uint64_t kCrowdedSpins = 50;
// Looks at the clock, and at the other ranks.
constexpr std::uint64_t kIdlePerLook = 64;
constexpr auto kLookEvery = std::chrono::milliseconds(2);
// A wait that has lasted this long does not mind a few microseconds more.
constexpr auto kLong = std::chrono::milliseconds(20);
// Something else than the message that is due may come.
constexpr auto kLongestSleep = std::chrono::milliseconds(2);
constexpr auto kShortestSleep = std::chrono::microseconds(50);
// A running rank shows a beat within so many such waits, however busy the machine.
constexpr auto kBeatWait = std::chrono::milliseconds(20);
constexpr int kBeatTries = 25;

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

std::string list_of(const std::vector<int>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

}  // namespace

Watch::Watch(Transport& transport, double timeout_s, FlightRecorder* recorder)
    : transport_(transport),
      timeout_s_(timeout_s),
      recorder_(recorder),
      crowded_(static_cast<unsigned>(transport.size()) > std::thread::hardware_concurrency()) {}

void Watch::begin(const Signature& call) {
  if (transport_.raised()) rethrow();
  call_ = call;
  idle_ = 0;
  transport_.enter(call);
  if (recorder_ != nullptr) recorder_->started(call);
}

void Watch::idle(int peer) {
  ++idle_;
  const std::uint64_t spins = crowded_ || patient_ ? kCrowdedSpins : kSpins;
  if (idle_ < spins) {
    pause_briefly();
    return;
  }
  const std::uint64_t waited = idle_ - spins;
  const bool slept = waited > 0 && (sleep_until_due() || sleep_patiently());
  if (!slept && waited % kIdlePerLook != 0) {
    sched_yield();
    return;
  }
  transport_.beat();
  if (transport_.raised()) rethrow();
  if (recorder_ != nullptr) {
    recorder_->waits_for(peer);
    const std::uint64_t last_look = std::exchange(looked_, ticks());
    if (waited > 0) recorder_->stood_still(looked_ - last_look);
  }
  const Clock::time_point now = Clock::now();
  if (waited == 0) {
    idle_since_ = now;
    next_look_ = now + kLookEvery;
    return;
  }
  // The processor is worth more to whoever is late.
  if (!slept && now - idle_since_ > kLong)
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  if (now < next_look_) return;
  next_look_ = now + kLookEvery;
  look_around();
  const std::chrono::duration<double> idle_for = now - idle_since_;
  if (idle_for.count() >= timeout_s_) {
    give_up(fmt::format("no progress for {:.3g} s: {}", timeout_s_, who_is_late(peer)));
  }
}

// While a message is known to be under way the processor is free for others.
bool Watch::sleep_until_due() {
  const Clock::time_point due = transport_.due();
  const Clock::time_point now = Clock::now();
  if (due <= now) return false;
  std::this_thread::sleep_until(std::min(due, now + kLongestSleep));
  return true;
}

// The longer it takes, the less a little more matters.
bool Watch::sleep_patiently() {
  if (!patient_) return false;
  const auto waited = Clock::now() - idle_since_;
  std::this_thread::sleep_for(
      std::clamp<Clock::duration>(waited / 8, kShortestSleep, kLongestSleep));
  return true;
}

// What need not wait for the time-out.
void Watch::look_around() {
  for (int rank = 0; rank < transport_.size(); ++rank) {
    if (rank == transport_.rank()) continue;
    const auto status = transport_.status(rank);
    if (!status) continue;
    if (status->state != RankStatus::State::running && status->finished < call_.sequence) {
      give_up(fmt::format("rank {} has ended after {} calls", rank, status->finished));
    }
    if (status->call.sequence == call_.sequence && status->call != call_) {
      mismatch(rank, status->call);
    }
  }
}

std::string Watch::who_is_late(int peer) {
  std::vector<int> absent;
  std::vector<int> present;
  std::vector<std::uint64_t> beats;
  bool known = false;
  for (int rank = 0; rank < transport_.size(); ++rank) {
    const auto status = transport_.status(rank);
    if (rank == transport_.rank() || !status) continue;
    known = true;
    if (status->entered < call_.sequence) {
      absent.push_back(rank);
    } else if (status->finished < call_.sequence) {
      present.push_back(rank);
      beats.push_back(status->beat);
    }
  }
  if (!known) return fmt::format("rank {} does not answer", peer);
  if (!absent.empty()) {
    const auto first = transport_.status(absent.front());
    return fmt::format("{} {} not called it; rank {} has finished call #{}", list_of(absent),
                       absent.size() == 1 ? "has" : "have", absent.front(), first->finished);
  }
  // All are in the call: those that stand still are stopped. On a busy machine a rank may not get
  // to its next beat at once.
  std::vector<int> still;
  for (int tries = 0; tries < kBeatTries; ++tries) {
    transport_.beat();  // others may be asking the same
    std::this_thread::sleep_for(kBeatWait);
    if (transport_.raised()) rethrow();
    still.clear();
    for (std::size_t i = 0; i < present.size(); ++i) {
      const auto status = transport_.status(present[i]);
      if (status->beat == beats[i] && status->finished < call_.sequence) {
        still.push_back(present[i]);
      }
    }
    if (still.empty()) break;
  }
  if (!still.empty()) {
    return fmt::format("{} {} stopped in the middle of it", list_of(still),
                       still.size() == 1 ? "has" : "have");
  }
  return fmt::format("rank {} does not answer", peer);
}

void Watch::mismatch(int peer, const Signature& theirs) {
  give_up(
      fmt::format("the ranks disagree: rank {} called {}, rank {} called {}; every rank must "
                  "make the same calls in the same order",
                  transport_.rank(), to_string(call_), peer, to_string(theirs)));
}

void Watch::give_up(const std::string& reason) {
  const std::string text =
      fmt::format("{}, seen by rank {}: {}", to_string(call_), transport_.rank(), reason);
  transport_.raise(text, ExitCode::communication);
  // Another rank may be writing its reason just now; the first one stands.
  for (int tries = 0; tries < 1000 && !transport_.raised(); ++tries) sched_yield();
  if (transport_.raised()) rethrow();
  // Whoever was writing is gone, and its reason with it.
  if (recorder_ != nullptr) {
    recorder_->note(FlightRecorder::End::communication, static_cast<int>(ExitCode::communication),
                    text);
  }
  throw Error(ExitCode::communication, text);
}

void Watch::abort(ExitCode code, std::string_view what) {
  transport_.raise(fmt::format("rank {}: {}", transport_.rank(), what), code);
}

void Watch::rethrow() {
  const std::string reason = transport_.reason();
  const ExitCode code = transport_.reason_code();
  if (recorder_ != nullptr) {
    recorder_->note(code == ExitCode::communication ? FlightRecorder::End::communication
                                                    : FlightRecorder::End::elsewhere,
                    static_cast<int>(code), reason);
  }
  // What is not the fault of communication is said by the rank where it happened.
  throw Error(code, code == ExitCode::communication ? reason : "");
}

}  // namespace belay::comm
