#pragma once
// The sinks a run uses.

#include <memory>
#include <string>

#include "belay/observe/metrics.h"

namespace belay {

// One JSON object a line, flushed line by line. A step's line holds the fields of StepMetrics; an
// evaluation's {"step", "val_loss", "val_tokens", "eval_ms"}; a snapshot's {"step",
// "snapshot_bytes", "snapshot_ms"}; a skipped step's also {"step", "skipped_tensor",
// "skipped_layer", "rank", "skipped_scale", "next_scale"}. A number that is not finite is null, and
// "non_finite" lists such fields. An existing file is continued after `resumed_step`: later lines
// and a torn last line are cut off. Throws Error(data) if the file cannot be opened,
// Error(capacity) if it cannot grow.
std::unique_ptr<MetricSink> make_jsonl_sink(const std::string& path, std::int64_t resumed_step);

// An event file for TensorBoard in `directory`: train/NAME for each number, val/loss. After a
// resume TensorBoard drops what earlier files hold behind `resumed_step`.
std::unique_ptr<MetricSink> make_tensorboard_sink(const std::string& directory,
                                                  std::int64_t resumed_step);

struct ConsoleOptions {
  std::int64_t first_step = 0;  // steps done before this process started
  std::int64_t total_steps = 0;
  std::int64_t every = 10;  // steps between lines where stderr is no terminal; 0: none
  bool color = true;
};

// A live bar on a terminal, plain lines elsewhere; on stderr. Silent where log messages of level
// info are.
std::unique_ptr<MetricSink> make_console_sink(const ConsoleOptions& options);

}  // namespace belay
