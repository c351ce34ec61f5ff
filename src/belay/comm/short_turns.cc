#include "belay/comm/short_turns.h"

#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace belay::comm {
namespace {

// sched_setattr(2); the C library has no declaration of it.
struct SchedulingAttributes {
  std::uint32_t size = sizeof(SchedulingAttributes);
  std::uint32_t policy = 0;  // the usual one
  std::uint64_t flags = 0;
  std::int32_t nice = 0;
  std::uint32_t priority = 0;
  std::uint64_t runtime_ns = 0;  // with the usual policy: a turn
  std::uint64_t deadline_ns = 0;
  std::uint64_t period_ns = 0;
};

}  // namespace

void ask_for_short_turns() {
  constexpr std::uint64_t kTurn = 100'000;  // the shortest that there is
  SchedulingAttributes attributes;
  attributes.nice = getpriority(PRIO_PROCESS, 0);  // of this thread
  attributes.runtime_ns = kTurn;
  // Sleeps end when they should, instead of 50 us later.
  static_cast<void>(prctl(PR_SET_TIMERSLACK, 1000));
  static_cast<void>(syscall(SYS_sched_setattr, 0, &attributes, 0));
}

}  // namespace belay::comm
