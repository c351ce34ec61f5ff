#include "belay/train/interrupt.h"

#include <csignal>

namespace belay {
namespace {

// A signal handler can reach nothing but a static.
volatile std::sig_atomic_t requested_signal = 0;

void on_signal(int signal) {
  requested_signal = signal;
  std::signal(signal, SIG_DFL);
}

}  // namespace

InterruptScope::InterruptScope() {
  requested_signal = 0;
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
}

InterruptScope::~InterruptScope() {
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
}

int InterruptScope::requested() {
  return requested_signal;
}

}  // namespace belay
