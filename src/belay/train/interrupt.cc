#include "belay/train/interrupt.h"

#include <csignal>

namespace belay {
namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGUSR1};

// A signal handler can reach nothing but a static.
volatile std::sig_atomic_t requested_signal = 0;

void on_signal(int signal) {
  requested_signal = signal;
  std::signal(signal, SIG_DFL);
}

}  // namespace

InterruptScope::InterruptScope() {
  requested_signal = 0;
  for (const int signal : kSignals) std::signal(signal, on_signal);
}

InterruptScope::~InterruptScope() {
  for (const int signal : kSignals) std::signal(signal, SIG_DFL);
}

int InterruptScope::requested() {
  return requested_signal;
}

}  // namespace belay
