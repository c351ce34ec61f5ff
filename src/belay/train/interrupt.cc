#include "belay/train/interrupt.h"

#include <array>
#include <csignal>
#include <mutex>

#include "belay/comm/flight_signals.h"

namespace belay {
namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGUSR1};

// A signal handler can reach nothing but a static.
volatile std::sig_atomic_t requested_signal = 0;

using Handler = void (*)(int);
std::array<Handler, std::size(kSignals)> previous{};
std::mutex scopes_mutex;
int scopes = 0;

// Whoever sends SIGTERM may not wait for the end: the flight record is written now. An end in
// order removes it again.
void on_signal(int signal) {
  requested_signal = signal;
  for (std::size_t i = 0; i < previous.size(); ++i) {
    if (kSignals[i] == signal) std::signal(signal, previous[i]);
  }
  if (signal != SIGUSR1) static_cast<void>(comm::write_flight_records(signal, false));
}

}  // namespace

// Ranks that are threads have a scope each: the first puts handlers in place, the last takes them
// away.
InterruptScope::InterruptScope() {
  const std::lock_guard lock(scopes_mutex);
  if (scopes++ > 0) return;
  requested_signal = 0;
  for (std::size_t i = 0; i < previous.size(); ++i) {
    previous[i] = std::signal(kSignals[i], on_signal);
    if (previous[i] == SIG_ERR) previous[i] = SIG_DFL;
  }
}

InterruptScope::~InterruptScope() {
  const std::lock_guard lock(scopes_mutex);
  if (--scopes > 0) return;
  for (std::size_t i = 0; i < previous.size(); ++i) std::signal(kSignals[i], previous[i]);
}

int InterruptScope::requested() {
  return requested_signal;
}

}  // namespace belay
