#pragma once
// The numbers of a StepMetrics by name: the one list that all sinks write.

#include <string_view>

#include "belay/observe/metrics.h"

namespace belay {

struct IntegerField {
  std::string_view name;
  std::int64_t StepMetrics::*member;
};
struct RealField {
  std::string_view name;
  double StepMetrics::*member;
};

inline constexpr IntegerField kIntegerFields[] = {
    {"step", &StepMetrics::step},
    {"tokens", &StepMetrics::tokens},
    {"step_tokens", &StepMetrics::step_tokens},
    {"counted_tokens", &StepMetrics::counted_tokens},
    {"rss_bytes", &StepMetrics::rss_bytes},
    {"comm_bytes", &StepMetrics::comm_bytes},
    {"comm_dense_bytes", &StepMetrics::comm_dense_bytes},
    {"low_precision_ops", &StepMetrics::low_precision_ops},
    {"full_precision_ops", &StepMetrics::full_precision_ops},
    {"overflowing_ops", &StepMetrics::overflowing_ops},
    {"steps_skipped", &StepMetrics::steps_skipped},
};
inline constexpr RealField kRealFields[] = {
    {"loss", &StepMetrics::loss},
    {"lr", &StepMetrics::lr},
    {"grad_norm", &StepMetrics::grad_norm},
    {"loss_scale", &StepMetrics::loss_scale},
    {"step_ms", &StepMetrics::step_ms},
    {"data_ms", &StepMetrics::data_ms},
    {"forward_ms", &StepMetrics::forward_ms},
    {"backward_ms", &StepMetrics::backward_ms},
    {"optimizer_ms", &StepMetrics::optimizer_ms},
    {"comm_ms", &StepMetrics::comm_ms},
    {"comm_exposed_ms", &StepMetrics::comm_exposed_ms},
    {"tokens_per_s", &StepMetrics::tokens_per_s},
    {"model_flops_per_s", &StepMetrics::model_flops_per_s},
};

}  // namespace belay
