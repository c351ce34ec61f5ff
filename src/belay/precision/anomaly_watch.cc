#include "belay/precision/anomaly_watch.h"

#include <fmt/format.h>

#include "belay/device/finite.h"

namespace belay {
namespace {

// The first result that is not finite.
class FirstBad final : public ResultVisitor {
 public:
  void result(std::string_view name, const Rows& rows) override {
    if (name_.empty() && has_non_finite(rows)) name_ = name;
  }
  [[nodiscard]] std::string_view name() const { return name_; }

 private:
  std::string_view name_;
};

}  // namespace

void AnomalyWatch::begin(std::int64_t step, std::int64_t micro_batch) {
  if (step != step_) found_ = false;
  step_ = step;
  micro_batch_ = micro_batch;
  overflowing_ = lane_.counts().overflowing;
}

void AnomalyWatch::record(const OpCall& call, std::chrono::steady_clock::time_point begin,
                          std::chrono::steady_clock::time_point end) {
  if (next_ != nullptr) next_->record(call, begin, end);
  if (found_) return;
  FirstBad first;
  call.visit_results(call, first);
  const bool overflowed = lane_.counts().overflowing > overflowing_;
  overflowing_ = lane_.counts().overflowing;
  if (first.name().empty() && !overflowed) return;
  found_ = true;
  kind_ = first.name().empty() ? Kind::saturated : Kind::not_finite;
  found_micro_batch_ = micro_batch_;
  layer_ = call.layer;
  op_ = call.op;
  kernel_ = call.kernel;
  tag_ = call.tag;
  result_ = first.name();
}

std::string AnomalyWatch::description() const {
  if (!found_) return {};
  std::string place = fmt::format("step {}, micro-batch {}", step_, found_micro_batch_);
  if (layer_ >= 0) place += fmt::format(", layer {}", layer_);
  if (!tag_.empty()) place += fmt::format(", {}", tag_);
  if (kind_ == Kind::saturated) {
    return fmt::format("{}: {} (kernel {}) saturated at 65504", place, op_, kernel_);
  }
  return fmt::format("{}: {} (kernel {}) left a value that is not finite in {}", place, op_,
                     kernel_, result_);
}

}  // namespace belay
