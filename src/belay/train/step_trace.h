#pragma once
// A trace of some steps of a run, written to timeline-FIRST-LAST.json in its directory.

#include <cstdint>
#include <memory>
#include <string>

#include "belay/train/timeline_recorder.h"

namespace belay {

class StepTrace {
 public:
  // Of steps `first` to `last`, with room for so many spans.
  StepTrace(std::string run_dir, std::int64_t first, std::int64_t last, std::size_t spans);

  // What is to hear of the step's calls; null: nobody, it is not traced.
  [[nodiscard]] OpRecorder* recorder_of(std::int64_t step);
  // Once: after the last step to trace, or when the run ends at `step` before it. Nothing is traced
  // from then on.
  void write(std::int64_t step);

 private:
  std::string run_dir_;
  std::int64_t first_;
  std::int64_t last_;
  std::unique_ptr<TimelineRecorder> recorder_;  // null: written
};

}  // namespace belay
