#pragma once
// GradientProtection: loss scaler, guard and the norms that they go by, as one thing that a step
// talks to. The scale is that of the mean loss over the tokens of a step. Backward passes work on
// sums over tokens, so they get scale / (tokens of a step, rounded up to a power of two): a
// gradient that is summed up stays within the scale times its mean, and scaling stays exact.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "belay/precision/guard.h"
#include "belay/precision/layer_groups.h"
#include "belay/precision/loss_scaler.h"

namespace belay {

struct ScaleChange {
  double before = 1;
  double after = 1;
  const GuardLook* look = nullptr;  // of this step, or null; valid until the next step
};

class GradientProtection {
 public:
  // `config` resolved and checked; the names are those of the parameter table, in its order.
  GradientProtection(const PrecisionConfig& config, std::span<const std::string> parameter_names,
                     std::int64_t tokens_per_step);

  // What every token's loss is multiplied by; 1 without loss scaling, else a power of two.
  [[nodiscard]] double multiplier() const;
  [[nodiscard]] const LossScaler& scaler() const { return scaler_; }
  [[nodiscard]] const LayerGroups& layers() const { return layers_; }

  // After a step with finite gradients. squares[i]: sum of squares of parameter i's gradient as
  // accumulated; divisor: what turns that gradient into that of the mean loss.
  ScaleChange good_step(std::span<const double> squares, double divisor);
  // After a step that was skipped because something overflowed; `loss_finite`: no sooner than in
  // the backward pass. The norms are taken for the record, and the guard's fall goes by them.
  ScaleChange overflow(std::span<const double> squares, double divisor, bool loss_finite = true);

  // Norms of the last step, one per layer; not finite where a gradient was not.
  [[nodiscard]] std::span<const double> norms() const { return norms_; }

  // Everything that changes, for a snapshot; one line per part.
  [[nodiscard]] std::string state() const;
  // Parts that the text lacks start afresh. Error(data) when it is damaged.
  void restore(std::string_view text);

 private:
  PrecisionConfig config_;
  LayerGroups layers_;
  LossScaler scaler_;
  double tokens_;  // a power of two
  NormHistory history_;
  std::unique_ptr<Guard> guard_;
  std::vector<double> norms_;
};

}  // namespace belay
