#include "belay/comm/flight_signals.h"

#include <array>
#include <atomic>
#include <csignal>

#include "belay/comm/flight_recorder.h"

namespace belay::comm {
namespace {

constexpr std::array<int, 5> kCrashes = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
constexpr std::array<int, 2> kRequests = {SIGTERM, SIGINT};
// A crash may be an overflow of the stack.
constexpr std::size_t kStackBytes = std::size_t{64} << 10;

std::array<std::atomic<FlightRecorder*>, 64> recorders{};
std::atomic<int> postponed = 0;  // a signal
static_assert(std::atomic<int>::is_always_lock_free);
alignas(64) std::array<std::byte, kStackBytes> crash_stack;

// The signal comes again once the handler returns, and finds the default.
void let_it_act(int signal) {
  std::signal(signal, SIG_DFL);
  static_cast<void>(::raise(signal));
}

void on_crash(int signal) {
  static_cast<void>(write_flight_records(signal, true));
  let_it_act(signal);
}

void on_request(int signal) {
  if (write_flight_records(signal, false)) {
    let_it_act(signal);
  } else {
    postponed = signal;
  }
}

}  // namespace

bool write_flight_records(int signal, bool crash) {
  bool all = true;
  for (const auto& recorder : recorders) {
    if (FlightRecorder* const one = recorder.load()) all &= one->write_at_signal(signal, crash);
  }
  return all;
}

void obey_postponed_request() {
  const int signal = postponed.exchange(0);
  if (signal != 0) let_it_act(signal);
}

void remember_flight_recorder(FlightRecorder& recorder) {
  forget_flight_recorder(recorder);
  for (auto& slot : recorders) {
    FlightRecorder* none = nullptr;
    if (slot.compare_exchange_strong(none, &recorder)) return;
  }
}

void forget_flight_recorder(FlightRecorder& recorder) {
  for (auto& slot : recorders) {
    FlightRecorder* own = &recorder;
    slot.compare_exchange_strong(own, nullptr);
  }
}

void write_flight_records_at_signals() {
  stack_t stack{};
  stack.ss_sp = crash_stack.data();
  stack.ss_size = crash_stack.size();
  static_cast<void>(::sigaltstack(&stack, nullptr));
  struct sigaction action {};
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_ONSTACK;
  action.sa_handler = on_crash;
  for (const int signal : kCrashes) static_cast<void>(::sigaction(signal, &action, nullptr));
  action.sa_handler = on_request;
  for (const int signal : kRequests) {
    struct sigaction before {};
    // What the parent wants ignored stays so.
    if (::sigaction(signal, nullptr, &before) == 0 && before.sa_handler == SIG_IGN) continue;
    static_cast<void>(::sigaction(signal, &action, nullptr));
  }
}

}  // namespace belay::comm
