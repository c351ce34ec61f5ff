#include "belay/train/step_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "belay/base/log.h"

namespace belay {

StepTrace::StepTrace(std::string run_dir, std::int64_t first, std::int64_t last, std::size_t spans)
    : run_dir_(std::move(run_dir)),
      first_(first),
      last_(last),
      recorder_(std::make_unique<TimelineRecorder>(spans)) {}

OpRecorder* StepTrace::recorder_of(std::int64_t step) {
  return step >= first_ && step <= last_ ? recorder_.get() : nullptr;
}

void StepTrace::write(std::int64_t step) {
  const std::unique_ptr<TimelineRecorder> recorder = std::move(recorder_);
  if (recorder == nullptr) return;
  if (recorder->timeline().spans().empty()) {
    log::warn("no step of {} to {} was run: there is no timeline", first_, last_);
    return;
  }
  const std::int64_t end = std::min(last_, step);
  const std::string path =
      (std::filesystem::path(run_dir_) / fmt::format("timeline-{}-{}.json", first_, end)).string();
  write_chrome_trace(recorder->timeline(), path);
  if (recorder->timeline().dropped() > 0) {
    log::warn("the timeline was full: {} spans are missing; raise observe.timeline_spans",
              recorder->timeline().dropped());
  }
  log::info("timeline of steps {} to {}: {} (open it at ui.perfetto.dev)", first_, end, path);
}

}  // namespace belay
