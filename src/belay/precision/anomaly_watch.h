#pragma once
// Anomaly mode: looks through the results of every operator call and remembers the first that is
// not finite, with everything that leads to it. Reads device memory, so it belongs to a lane whose
// device computes on the host; costs a pass over each result.

#include <cstdint>
#include <string>

#include "belay/device/device.h"

namespace belay {

class AnomalyWatch final : public OpRecorder {
 public:
  // Of the lane whose calls it will see. `next` also sees every call; may be null.
  explicit AnomalyWatch(const Lane& lane, OpRecorder* next = nullptr) : lane_(lane), next_(next) {}

  // What follows belongs to this step, and to this of its micro-batches. A new step forgets what
  // was found.
  void begin(std::int64_t step, std::int64_t micro_batch);
  void record(const OpCall& call, std::chrono::steady_clock::time_point begin,
              std::chrono::steady_clock::time_point end) override;

  [[nodiscard]] bool found() const { return found_; }
  // "step 12, micro-batch 0, layer 3, backward: attention_backward (kernel flash) left a value
  // that is not finite in d_q"; empty when nothing was found.
  [[nodiscard]] std::string description() const;

 private:
  enum class Kind : std::uint8_t { not_finite, saturated };

  const Lane& lane_;
  OpRecorder* next_;
  std::int64_t step_ = 0;
  std::int64_t micro_batch_ = 0;
  std::int64_t overflowing_ = 0;  // of the lane's counts, seen so far
  bool found_ = false;
  // The call; all names live as long as the program.
  Kind kind_ = Kind::not_finite;
  std::int64_t found_micro_batch_ = 0;
  int layer_ = -1;
  std::string_view op_, kernel_, tag_, result_;
};

}  // namespace belay
