// Recording a step must not touch the heap: it happens inside the steady training step.

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "belay/base/allocation_count.h"
#include "belay/observe/memory.h"
#include "belay/observe/sinks.h"
#include "belay/observe/timeline.h"

namespace belay {
namespace {

TEST(ObserveAllocationTest, AStepOfAllSinksAllocatesNothing) {
  const std::string directory = ::testing::TempDir() + "belay_allocation";
  std::filesystem::remove_all(directory);
  std::filesystem::create_directories(directory);
  MetricHub hub(1);
  hub.add(make_jsonl_sink(directory + "/metrics.jsonl", 0));
  hub.add(make_tensorboard_sink(directory, 0));
  ::testing::internal::CaptureStderr();
  hub.add(make_console_sink({.total_steps = 100, .every = 1}));
  GrowthWatch watch(1.0);
  Timeline timeline(1000, 1000);
  timeline.keep("forward");

  std::int64_t counts[2] = {};
  for (std::int64_t step = 1; step <= 50; ++step) {
    const std::int64_t before = allocation_count();
    const SpanScope scope(&timeline, 0, timeline.keep("forward"));
    hub.step({.step = step,
              .tokens = step * 512,
              .step_tokens = 512,
              .loss = step % 7 == 0 ? std::nan("") : 3.14159,
              .step_ms = 12.5,
              .rss_bytes = resident_bytes()});
    hub.evaluation({.step = step, .loss = 2, .tokens = 10, .ms = 1});
    hub.snapshot({.step = step, .bytes = 10, .ms = 1});
    timeline.record(CounterSample{.name = "queue", .value = 1});
    watch.add(step, resident_bytes());
    counts[step == 1 ? 0 : 1] += allocation_count() - before;
  }
  hub.close();
  ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(counts[1], 0) << "after the first step";
}

}  // namespace
}  // namespace belay
