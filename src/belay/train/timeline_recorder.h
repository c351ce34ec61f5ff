#pragma once
// Feeds a lane's calls into a Timeline while it is switched on.

#include "belay/device/device.h"
#include "belay/observe/timeline.h"

namespace belay {

class TimelineRecorder final : public OpRecorder {
 public:
  static constexpr int kComputeLane = 0;
  static constexpr int kPhaseLane = 1;

  explicit TimelineRecorder(std::size_t capacity);
  void record(const OpCall& call, std::chrono::steady_clock::time_point begin,
              std::chrono::steady_clock::time_point end) override;
  [[nodiscard]] Timeline& timeline() { return timeline_; }

 private:
  Timeline timeline_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace belay
