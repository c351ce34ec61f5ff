#pragma once
// What a run says about itself while it runs. The trainer fills in one StepMetrics per step and
// hands it to a MetricHub, which derives the rates and passes records on to its sinks (JSON lines,
// TensorBoard, console). In the steady state nothing here allocates on the heap.

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace belay {

struct StepMetrics {
  std::int64_t step = 0;            // 1 for the first
  std::int64_t tokens = 0;          // trained on since step 1, this step included
  std::int64_t step_tokens = 0;     // rows x seq_len of this step
  std::int64_t counted_tokens = 0;  // of those, the ones whose loss counts; 0: loss is not a number
  double loss = 0;                  // mean over the counted tokens, nats
  double lr = 0;
  double grad_norm = 0;            // global, before clipping
  double loss_scale = 1;           // of this step
  std::int64_t steps_skipped = 0;  // so far, because a loss or gradient was not finite
  // Wall-clock parts of the step. step_ms spans from the end of the step before to the end of this
  // one, without evaluation and snapshots, which have records of their own.
  double step_ms = 0;
  double data_ms = 0;  // waiting for data
  double forward_ms = 0;
  double backward_ms = 0;
  double optimizer_ms = 0;
  double comm_ms = 0;          // in collectives over gradients
  double comm_exposed_ms = 0;  // of that, what computing waited for
  // What a rank sent for the sums of gradients in this step, and would have sent without
  // compression.
  std::int64_t comm_bytes = 0;
  std::int64_t comm_dense_bytes = 0;
  double model_flops = 0;  // of this step, by the convention of the user guide
  // Derived by MetricHub over the steps since the last record: same window as step_ms.
  double tokens_per_s = 0;
  double model_flops_per_s = 0;
  std::int64_t rss_bytes = 0;
  // Operator calls of the step: computed in 16 bits, in full precision, and those that left
  // infinities or NaN in f16 results (or saturated).
  std::int64_t low_precision_ops = 0;
  std::int64_t full_precision_ops = 0;
  std::int64_t overflowing_ops = 0;
};

struct EvaluationMetrics {
  std::int64_t step = 0;
  double loss = 0;  // mean over `tokens`, nats
  std::int64_t tokens = 0;
  double ms = 0;
};

struct SnapshotMetrics {
  std::int64_t step = 0;
  std::int64_t bytes = 0;
  double ms = 0;
};

// A step that was skipped because its loss or a gradient was not finite.
struct SkippedStepMetrics {
  std::int64_t step = 0;
  std::string_view tensor;  // the first that went wrong: a parameter's name or "loss"
  std::string_view layer;   // the one it belongs to
  int rank = 0;
  double loss_scale = 1;  // that the step used
  double next_scale = 1;
};

// What became known of a link between ranks, or of a rank.
struct LinkMetrics {
  std::int64_t step = 0;
  std::string_view event;  // slow_link, healed_link, late_rank
  int from = 0;            // ranks; of late_rank the same twice
  int to = 0;
  double value = 0;    // GB/s; of late_rank the share of the step outside of collectives
  double typical = 0;  // of other links, or ranks
  std::int64_t epoch = 0;
};

class MetricSink {
 public:
  MetricSink() = default;
  virtual ~MetricSink() = default;
  MetricSink(const MetricSink&) = delete;
  MetricSink& operator=(const MetricSink&) = delete;

  virtual void step(const StepMetrics& metrics) = 0;
  virtual void evaluation(const EvaluationMetrics& metrics) = 0;
  virtual void snapshot(const SnapshotMetrics& metrics) = 0;
  // Sinks that show numbers only have steps_skipped of the step's own record.
  virtual void skipped_step(const SkippedStepMetrics&) {}
  virtual void link(const LinkMetrics&) {}
  // After the last record; also leaves the terminal in order. Called once.
  virtual void close() {}
};

// Hands every `log_every`-th step, and the last one, to the sinks. Times in a record are means over
// the steps since the record before; tokens_per_s and model_flops_per_s are totals over the same
// steps divided by their time, so that step_tokens / step_ms is tokens_per_s. Loss, rate and norm
// are the step's.
class MetricHub {
 public:
  explicit MetricHub(std::int64_t log_every) : log_every_(log_every) {}
  // Closes what is open still; what sinks throw then is lost, as a run that ends so has an error
  // already.
  ~MetricHub();
  MetricHub(const MetricHub&) = delete;
  MetricHub& operator=(const MetricHub&) = delete;

  void add(std::unique_ptr<MetricSink> sink) { sinks_.push_back(std::move(sink)); }
  void step(const StepMetrics& metrics);
  void evaluation(const EvaluationMetrics& metrics);
  void snapshot(const SnapshotMetrics& metrics);
  void skipped_step(const SkippedStepMetrics& metrics);
  void link(const LinkMetrics& metrics);
  // All sinks, also where one fails; what the first threw goes on its way then.
  void close();

 private:
  std::int64_t log_every_;
  // Hands out the steps since the last record, if any.
  void flush();

  std::vector<std::unique_ptr<MetricSink>> sinks_;
  StepMetrics last_;
  StepMetrics window_;  // sums of times, tokens and flops
  std::int64_t window_steps_ = 0;
};

}  // namespace belay
