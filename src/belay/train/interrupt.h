#pragma once
// SIGINT, SIGTERM and SIGUSR1 ask a run to save and stop after the present step; a second one kills
// it. mpirun passes SIGUSR1 on and leaves it at that; after SIGTERM it kills within seconds.

namespace belay {

class InterruptScope {
 public:
  InterruptScope();
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;
  // The signal that came, or 0.
  [[nodiscard]] static int requested();
};

}  // namespace belay
