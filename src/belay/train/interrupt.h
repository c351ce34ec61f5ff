#pragma once
// SIGINT and SIGTERM ask a run to save and stop after the present step; a second one kills it.

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
