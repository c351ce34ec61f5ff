#pragma once
// GradientWatch: between the steps of a run and the precision room. Scales the loss, reports what
// was skipped and why, keeps the record of gradient norms, and gives a hopeless run up.

#include <memory>
#include <string>

#include "belay/observe/metrics.h"
#include "belay/precision/gradient_protection.h"
#include "belay/precision/gradient_record.h"
#include "belay/train/run_setup.h"
#include "belay/train/step.h"

namespace belay {

class GradientWatch {
 public:
  // The setup must outlive the watch.
  explicit GradientWatch(const RunSetup& setup);

  // `state` is that of the snapshot a run goes on from; empty for a new run.
  void restore(const std::string& state);
  [[nodiscard]] std::string state() const { return protection_.state(); }
  // Opens the record in the run directory, continued after `resumed_step`.
  void open_record(const std::string& run_dir, std::int64_t resumed_step);

  // For the next step.
  [[nodiscard]] double multiplier() const { return protection_.multiplier(); }
  [[nodiscard]] double scale() const { return protection_.scaler().scale(); }
  // Whether a step in which an f16 result saturated is to be skipped: with a loss scale, where the
  // device saturates.
  [[nodiscard]] bool skips_saturated() const;

  // Takes in a step with labels. Warns of a skipped one and tells the sinks; Error(numerics) when
  // the last max_skips steps were skipped at a scale that cannot fall.
  void after_step(std::int64_t step, const StepResult& result, MetricHub& hub);

 private:
  void skipped(std::int64_t step, const StepResult& result, MetricHub& hub);
  // Why a step was skipped, naming the tensor.
  [[nodiscard]] std::string complaint(const StepResult& result) const;
  void report(std::int64_t step, const ScaleChange& change);
  void warn_of_forecast(std::int64_t step, const GuardLook& look);

  const RunSetup& setup_;
  PrecisionConfig config_;
  GradientProtection protection_;
  std::unique_ptr<GradientRecordWriter> record_;
  bool warned_ = false;  // of the present forecast
};

}  // namespace belay
