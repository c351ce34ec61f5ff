#include "belay/comm/flight_recorder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "belay/base/error.h"
#include "belay/comm/algorithm.h"
#include "belay/comm/flight_signals.h"
#include "belay/comm/signal_safe_writer.h"
#include "belay/comm/ticks.h"

namespace belay::comm {
namespace {

using State = FlightEntry::State;
using End = FlightRecorder::End;

constexpr auto kRelaxed = std::memory_order_relaxed;
// About a tenth of a second, or a quarter where a tick is a nanosecond.
constexpr std::uint64_t kCpuEvery = std::uint64_t{1} << 28;

std::string_view name_of(State state) {
  constexpr std::array<std::string_view, 4> kNames = {"none", "queued", "started", "done"};
  return kNames[static_cast<std::size_t>(state)];
}

std::string_view name_of(End end) {
  constexpr std::array<std::string_view, 6> kNames = {"unknown",   "communication", "error",
                                                      "elsewhere", "asked",         "crashed"};
  return kNames[static_cast<std::size_t>(end)];
}

std::string_view name_of(RankStatus::State state) {
  constexpr std::array<std::string_view, 3> kNames = {"running", "left", "failed"};
  return kNames[std::min<std::size_t>(static_cast<std::size_t>(state), 2)];
}

// From ticks to microseconds since 1970.
struct Calendar {
  std::uint64_t now_ticks;
  std::uint64_t now_us;
  double us_per_tick;

  [[nodiscard]] std::int64_t us(std::uint64_t at) const {
    if (at == 0) return 0;
    const auto ago = static_cast<double>(now_ticks - std::min(at, now_ticks));
    return static_cast<std::int64_t>(now_us) - static_cast<std::int64_t>(ago * us_per_tick);
  }
  [[nodiscard]] std::int64_t span_us(std::uint64_t ticks) const {
    return static_cast<std::int64_t>(static_cast<double>(ticks) * us_per_tick);
  }
};

void write_algorithm(SignalSafeWriter& out, const Signature& call) {
  if (call.algorithm == kOwnSchedule) {
    out.text("\"own schedule\"");
  } else if (call.algorithm == kExchange) {
    out.text("\"link test\"");
  } else if (call.algorithm < kAlgorithms && call.collective != Collective::barrier) {
    out.quoted(comm::name_of(static_cast<Algorithm>(call.algorithm)));
    out.text(", \"segments\": ").number(call.segments);
    if (static_cast<Algorithm>(call.algorithm) == Algorithm::hierarchical) {
      out.text(", \"inner\": ").quoted(comm::name_of(static_cast<Inner>(call.inner)));
      out.text(", \"outer\": ").quoted(comm::name_of(static_cast<Outer>(call.outer)));
    }
  } else {
    out.text("\"\"");
  }
}

void write_entry(SignalSafeWriter& out, const FlightEntry& entry, const Calendar& calendar) {
  const Signature& call = entry.call;
  const State state = entry.state.load(std::memory_order_acquire);
  out.text("{\"sequence\": ").number(static_cast<std::int64_t>(call.sequence));
  out.text(", \"epoch\": ").number(call.epoch);
  out.text(", \"collective\": ").quoted(comm::name_of(call.collective));
  out.text(", \"op\": ").quoted(comm::name_of(call.op));
  out.text(", \"dtype\": ").quoted(belay::name_of(call.dtype));
  out.text(", \"count\": ").number(call.count).text(", \"root\": ").number(call.root);
  out.text(", \"algorithm\": ");
  write_algorithm(out, call);
  out.text(", \"state\": ").quoted(name_of(state));
  out.text(", \"queued_us\": ").number(calendar.us(entry.queued.load(kRelaxed)));
  out.text(", \"started_us\": ").number(calendar.us(entry.started.load(kRelaxed)));
  out.text(", \"done_us\": ").number(calendar.us(entry.done.load(kRelaxed)));
  out.text(", \"waited_for\": [");
  bool first = true;
  for (const auto& waited : entry.waited) {
    const std::int32_t peer = waited.load(kRelaxed);
    if (peer < 0) break;
    if (!first) out.text(", ");
    out.number(peer);
    first = false;
  }
  out.text("], \"still_us\": ").number(calendar.span_us(entry.still.load(kRelaxed))).text("}");
}

}  // namespace

FlightRecorder::FlightRecorder(const Transport& transport)
    : transport_(transport), first_ticks_(ticks()), first_ns_(clock_ns(CLOCK_MONOTONIC)) {
  static_cast<void>(gethostname(host_.data(), host_.size() - 1));
  cpu_ticks_.store(first_ticks_, kRelaxed);
  cpu_ns_.store(clock_ns(CLOCK_PROCESS_CPUTIME_ID), kRelaxed);
}

FlightRecorder::~FlightRecorder() {
  forget_flight_recorder(*this);
  if (written_.load() && !failed_) static_cast<void>(::unlink(path_.data()));
}

void FlightRecorder::queued(const Signature& call) {
  FlightEntry& own = entry(call.sequence);
  const std::uint64_t now = ticks();
  if (last_done_ != 0) outside_ += now - last_done_;
  own.state.store(State::none, std::memory_order_release);
  own.call = call;
  own.queued.store(now, kRelaxed);
  own.started.store(0, kRelaxed);
  own.done.store(0, kRelaxed);
  own.still.store(0, kRelaxed);
  for (auto& waited : own.waited) waited.store(-1, kRelaxed);
  own.state.store(State::queued, std::memory_order_release);
  last_.store(call.sequence, kRelaxed);
  if (now - cpu_ticks_.load(kRelaxed) > kCpuEvery) {
    cpu_ns_.store(clock_ns(CLOCK_PROCESS_CPUTIME_ID), kRelaxed);
    cpu_ticks_.store(now, kRelaxed);
  }
}

void FlightRecorder::started(const Signature& call) {
  FlightEntry& own = entry(call.sequence);
  // A call may have several parts, of which the first counts.
  if (own.state.load(kRelaxed) == State::queued) {
    const std::uint64_t now = ticks();
    outside_ += now - own.queued.load(kRelaxed);
    own.started.store(now, kRelaxed);
  }
  own.call = call;
  own.state.store(State::started, std::memory_order_release);
}

void FlightRecorder::done(std::uint64_t sequence) {
  FlightEntry& own = entry(sequence);
  last_done_ = ticks();
  own.done.store(last_done_, kRelaxed);
  own.state.store(State::done, std::memory_order_release);
  finished_.store(sequence, kRelaxed);
}

void FlightRecorder::waits_for(int peer) {
  auto& waited = entry(last_.load(kRelaxed)).waited;
  std::int32_t moved = peer;
  for (auto& slot : waited) {
    const std::int32_t before = slot.load(kRelaxed);
    slot.store(moved, kRelaxed);
    if (before == peer || before < 0) return;
    moved = before;
  }
}

void FlightRecorder::stood_still(std::uint64_t ticks) {
  auto& still = entry(last_.load(kRelaxed)).still;
  if (ticks > still.load(kRelaxed)) still.store(ticks, kRelaxed);
}

void FlightRecorder::keep_in(const std::string& directory) {
  if (directory.empty() || directory.size() >= directory_.size()) {
    fail(ExitCode::usage, "'{}' cannot hold flight records: name a directory of 1 to {} characters",
         directory, directory_.size() - 1);
  }
  const auto put = [](auto& to, const std::string& text) {
    std::copy(text.begin(), text.end(), to.begin());
    to[text.size()] = '\0';
  };
  // Whether that went well shows when the record is written.
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(directory).parent_path(), ignored);
  put(directory_, directory);
  put(path_, fmt::format("{}/rank-{}.json", directory, transport_.rank()));
  put(unfinished_, fmt::format("{}/.rank-{}.json.unfinished", directory, transport_.rank()));
  remember_flight_recorder(*this);
}

void FlightRecorder::note(End end, int code, std::string_view text) {
  const End before = end_.load();
  if (before != End::unknown && before != End::asked) return;
  const std::size_t length = std::min(text.size(), text_.size() - 1);
  std::memcpy(text_.data(), text.data(), length);
  text_[length] = '\0';
  code_.store(code);
  end_.store(end);
}

bool FlightRecorder::write_at_signal(int signal, bool crash) {
  if (writing_.test()) return false;
  const End before = end_.load();
  if (before == End::unknown || (crash && before == End::asked)) {
    code_.store(signal);
    end_.store(crash ? End::crashed : End::asked);
  }
  if (crash) failed_ = true;
  const int error = errno;
  static_cast<void>(write());
  errno = error;
  return true;
}

bool FlightRecorder::write() {
  if (!is_kept() || writing_.test_and_set()) return false;
  const bool done = write_file();
  writing_.clear();
  obey_postponed_request();
  return done;
}

bool FlightRecorder::write_file() {
  const End end = end_.load();
  if (end != End::asked) failed_ = true;
  static_cast<void>(::mkdir(directory_.data(), 0777));
  const int file = ::open(unfinished_.data(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file < 0) return false;
  Calendar calendar{ticks(), clock_ns(CLOCK_REALTIME) / 1000, 0};
  const std::uint64_t passed = std::max<std::uint64_t>(calendar.now_ticks - first_ticks_, 1);
  calendar.us_per_tick = static_cast<double>(clock_ns(CLOCK_MONOTONIC) - first_ns_) / 1000.0 /
                         static_cast<double>(passed);
  const std::uint64_t cpu_now = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
  const std::uint64_t last = last_.load();

  // A line each for the head, the peers and every call: what is left of a cut file can be read.
  SignalSafeWriter out(file);
  out.text("{\"belay_flight\": 1, \"rank\": ").number(transport_.rank());
  out.text(", \"ranks\": ").number(transport_.size());
  out.text(", \"host\": ").quoted(host_.data());
  out.text(", \"pid\": ").number(::getpid());
  out.text(", \"written_us\": ").number(static_cast<std::int64_t>(calendar.now_us));
  out.text(", \"end\": ").quoted(name_of(end)).text(", \"code\": ").number(code_.load());
  out.text(", \"text\": ").quoted(text_.data());
  out.text(", \"last_call\": ").number(static_cast<std::int64_t>(last));
  out.text(", \"finished_call\": ").number(static_cast<std::int64_t>(finished_.load()));
  out.text(", \"watched_us\": ").number(calendar.span_us(calendar.now_ticks - cpu_ticks_.load()));
  out.text(", \"cpu_us\": ").number(static_cast<std::int64_t>((cpu_now - cpu_ns_.load()) / 1000));
  out.text(",\n\"peers\": [");
  bool first = true;
  for (int rank = 0; rank < transport_.size(); ++rank) {
    if (rank == transport_.rank()) continue;
    const auto status = transport_.status(rank);
    if (!status) continue;
    out.text(first ? "" : ", ").text("{\"rank\": ").number(rank);
    out.text(", \"state\": ").quoted(name_of(status->state));
    out.text(", \"entered\": ").number(static_cast<std::int64_t>(status->entered));
    out.text(", \"finished\": ").number(static_cast<std::int64_t>(status->finished)).text("}");
    first = false;
  }
  out.text("],\n\"calls\": [");
  const std::uint64_t oldest = last > kEntries ? last - kEntries + 1 : 1;
  first = true;
  for (std::uint64_t sequence = oldest; sequence <= last; ++sequence) {
    const FlightEntry& one = entry(sequence);
    if (one.call.sequence != sequence || one.state.load() == State::none) continue;
    out.text(first ? "\n" : ",\n");
    write_entry(out, one, calendar);
    first = false;
  }
  out.text("]}\n");
  const bool complete = out.finish() && ::fsync(file) == 0;
  ::close(file);
  const bool done = complete && ::rename(unfinished_.data(), path_.data()) == 0;
  if (!done) static_cast<void>(::unlink(unfinished_.data()));
  if (done) written_.store(true);
  return done;
}

}  // namespace belay::comm
