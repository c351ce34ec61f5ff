#include "belay/precision/gradient_protection.h"

#include <fmt/format.h>

#include <bit>

#include "belay/base/error.h"

namespace belay {

GradientProtection::GradientProtection(const PrecisionConfig& config,
                                       std::span<const std::string> parameter_names,
                                       std::int64_t tokens_per_step)
    : config_(config),
      layers_(parameter_names),
      scaler_(config),
      tokens_(static_cast<double>(std::bit_ceil(static_cast<std::uint64_t>(tokens_per_step)))),
      history_(layers_.size(), Guard::history_needed(config)),
      norms_(static_cast<std::size_t>(layers_.size())) {
  if (scaler_.dynamic() && config.guard) guard_ = std::make_unique<Guard>(config, layers_.size());
}

double GradientProtection::multiplier() const {
  return config_.loss_scale == LossScaleMode::none ? 1.0 : scaler_.scale() / tokens_;
}

ScaleChange GradientProtection::good_step(std::span<const double> squares, double divisor) {
  layers_.norms(squares, divisor, norms_);
  ScaleChange change;
  change.before = change.after = scaler_.scale();
  if (guard_ == nullptr) {
    scaler_.good_step();
    change.after = scaler_.scale();
    return change;
  }
  history_.push(norms_);
  guard_->recovered();
  change.look = guard_->after_step(history_, scaler_.scale());
  scaler_.good_step(guard_->has_room(scaler_.scale() * config_.growth_factor));
  if (change.look != nullptr) {
    for (int halving = 0; halving < change.look->halvings; ++halving) scaler_.lower();
  }
  change.after = scaler_.scale();
  return change;
}

ScaleChange GradientProtection::overflow(std::span<const double> squares, double divisor,
                                         bool loss_finite) {
  layers_.norms(squares, divisor, norms_);
  ScaleChange change;
  change.before = scaler_.scale();
  const int halvings =
      guard_ == nullptr ? 1 : guard_->after_overflow(history_, norms_, change.before, loss_finite);
  scaler_.overflow();
  for (int halving = 1; halving < halvings; ++halving) scaler_.lower();
  change.after = scaler_.scale();
  return change;
}

std::string GradientProtection::state() const {
  std::string text = fmt::format("scaler {}\n", scaler_.state());
  if (guard_ != nullptr) {
    text += fmt::format("guard {}\nnorms {}\n", guard_->state(), history_.state());
  }
  return text;
}

void GradientProtection::restore(std::string_view text) {
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    const std::string_view part = line.substr(0, line.find(' '));
    const std::string_view rest = line.substr(std::min(part.size() + 1, line.size()));
    if (part == "scaler") {
      scaler_.restore(rest);
    } else if (part == "guard") {
      if (guard_ != nullptr) guard_->restore(rest);
    } else if (part == "norms") {
      if (guard_ != nullptr) history_.restore(rest);
    } else {
      fail(ExitCode::data, "the snapshot's state of the loss scale has an unknown part '{}'",
           part.substr(0, 40));
    }
  }
}

}  // namespace belay
