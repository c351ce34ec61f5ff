#include <gtest/gtest.h>

#include <cmath>

#include "belay/observe/sinks.h"

namespace belay {
namespace {

// Tests have no terminal, so the sink prints plain lines.
std::string printed(const ConsoleOptions& options, void (*play)(MetricSink&)) {
  ::testing::internal::CaptureStderr();
  const auto sink = make_console_sink(options);
  play(*sink);
  sink->close();
  return ::testing::internal::GetCapturedStderr();
}

TEST(ConsoleSinkTest, PrintsTheFirstEveryNthAndTheLastStep) {
  const std::string text = printed({.total_steps = 25, .every = 10}, [](MetricSink& sink) {
    for (std::int64_t step = 1; step <= 25; ++step) {
      sink.step({.step = step, .loss = 2.5, .lr = 1e-3, .step_ms = 100, .tokens_per_s = 5120});
    }
  });
  EXPECT_EQ(text,
            "step 1/25  loss 2.5000  lr 1.00e-03  5.12k tok/s  2s left\n"
            "step 10/25  loss 2.5000  lr 1.00e-03  5.12k tok/s  2s left\n"
            "step 20/25  loss 2.5000  lr 1.00e-03  5.12k tok/s  1s left\n"
            "step 25/25  loss 2.5000  lr 1.00e-03  5.12k tok/s  0s left\n");
}

TEST(ConsoleSinkTest, RateAndRemainingTimeShareAWindowWithoutEvaluationAndSnapshots) {
  const std::string text = printed({.total_steps = 1100, .every = 100}, [](MetricSink& sink) {
    for (std::int64_t step = 1; step <= 100; ++step) {
      // Slow at first; only the last twenty steps count, at 50 ms and 1024 tokens each.
      const double ms = step <= 80 ? 1000 : 50;
      sink.step({.step = step, .step_ms = ms, .tokens_per_s = 1024 / (ms * 1e-3)});
      sink.snapshot({.step = step, .bytes = 1000, .ms = 2000});
    }
  });
  EXPECT_NE(text.find("step 100/1100  loss 0.0000  lr 0.00e+00  20.5k tok/s  50s left"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("step 100  snapshot of 1.00kB  (2.0s)"), std::string::npos);
}

TEST(ConsoleSinkTest, RecordsOfSeveralStepsCountAsSuch) {
  const std::string text = printed({.total_steps = 1000, .every = 5}, [](MetricSink& sink) {
    // log_every = 5: each record stands for five steps of 200 ms.
    for (std::int64_t step = 5; step <= 500; step += 5) {
      sink.step({.step = step, .step_ms = 200, .tokens_per_s = 100});
    }
  });
  EXPECT_NE(text.find("step 500/1000  loss 0.0000  lr 0.00e+00  100 tok/s  1m40s left"),
            std::string::npos)
      << text;
}

TEST(ConsoleSinkTest, EvaluationsAndBrokenLossesReadWell) {
  const std::string text = printed({.total_steps = 10, .every = 1}, [](MetricSink& sink) {
    sink.step({.step = 1, .loss = std::nan("")});
    sink.evaluation({.step = 1, .loss = 3.25, .tokens = 1003, .ms = 1234});
  });
  EXPECT_EQ(text,
            "step 1/10  loss not finite  lr 0.00e+00\n"
            "step 1  validation loss 3.2500 over 1.00k tokens  (1.2s)\n");
}

}  // namespace
}  // namespace belay
