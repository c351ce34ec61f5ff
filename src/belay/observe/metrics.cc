#include "belay/observe/metrics.h"

#include <exception>

namespace belay {

void MetricHub::step(const StepMetrics& metrics) {
  window_.step_tokens += metrics.step_tokens;
  window_.step_ms += metrics.step_ms;
  window_.data_ms += metrics.data_ms;
  window_.forward_ms += metrics.forward_ms;
  window_.backward_ms += metrics.backward_ms;
  window_.optimizer_ms += metrics.optimizer_ms;
  window_.comm_ms += metrics.comm_ms;
  window_.comm_exposed_ms += metrics.comm_exposed_ms;
  window_.model_flops += metrics.model_flops;
  ++window_steps_;
  last_ = metrics;
  if (metrics.step % log_every_ == 0) flush();
}

void MetricHub::flush() {
  if (window_steps_ == 0) return;
  const auto steps = static_cast<double>(window_steps_);
  const double seconds = window_.step_ms * 1e-3;
  StepMetrics record = last_;
  record.step_ms = window_.step_ms / steps;
  record.data_ms = window_.data_ms / steps;
  record.forward_ms = window_.forward_ms / steps;
  record.backward_ms = window_.backward_ms / steps;
  record.optimizer_ms = window_.optimizer_ms / steps;
  record.comm_ms = window_.comm_ms / steps;
  record.comm_exposed_ms = window_.comm_exposed_ms / steps;
  record.tokens_per_s = seconds > 0 ? static_cast<double>(window_.step_tokens) / seconds : 0;
  record.model_flops_per_s = seconds > 0 ? window_.model_flops / seconds : 0;
  window_ = {};
  window_steps_ = 0;
  for (const auto& sink : sinks_) sink->step(record);
}

void MetricHub::evaluation(const EvaluationMetrics& metrics) {
  for (const auto& sink : sinks_) sink->evaluation(metrics);
}

void MetricHub::snapshot(const SnapshotMetrics& metrics) {
  for (const auto& sink : sinks_) sink->snapshot(metrics);
}

void MetricHub::skipped_step(const SkippedStepMetrics& metrics) {
  for (const auto& sink : sinks_) sink->skipped_step(metrics);
}

void MetricHub::link(const LinkMetrics& metrics) {
  for (const auto& sink : sinks_) sink->link(metrics);
}

MetricHub::~MetricHub() {
  try {
    close();
  } catch (...) {
  }
}

void MetricHub::close() {
  std::exception_ptr failure;
  const auto attempt = [&](const auto& body) {
    try {
      body();
    } catch (...) {
      if (!failure) failure = std::current_exception();
    }
  };
  attempt([&] { flush(); });
  for (const auto& sink : sinks_) attempt([&] { sink->close(); });
  sinks_.clear();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace belay
