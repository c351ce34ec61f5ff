#pragma once
// LossScaler: the state machine of dynamic loss scaling (Micikevicius et al., arXiv:1710.03740,
// section 3.2, with the automatic variant that mixed-precision libraries share): the scale falls by
// a factor when a gradient overflows and grows after so many good steps in a row. All scales are
// powers of two, so that scaling and unscaling are exact.

#include <cstdint>
#include <string>
#include <string_view>

#include "belay/precision/precision_config.h"

namespace belay {

class LossScaler {
 public:
  // `config` resolved and checked.
  explicit LossScaler(const PrecisionConfig& config);

  // What the mean loss is multiplied by; 1 in mode none.
  [[nodiscard]] double scale() const { return scale_; }
  [[nodiscard]] bool dynamic() const { return mode_ == LossScaleMode::dynamic; }
  // Overflows in a row that met a scale which could not fall (always, unless dynamic).
  [[nodiscard]] std::int64_t stuck() const { return stuck_; }

  // After a step whose gradients were finite. The scale grows when the interval is over and
  // `may_grow`; without leave to grow the interval stays over. True: the scale has grown.
  bool good_step(bool may_grow = true);
  // After a step with a gradient that is not finite. True: the scale has fallen.
  bool overflow();
  // A halving before anything has overflowed: as overflow(), but no step was lost. True: the scale
  // has fallen.
  bool lower();

  // Everything that changes, as text for a snapshot.
  [[nodiscard]] std::string state() const;
  // Error(data) when the text is not a state.
  void restore(std::string_view text);

 private:
  LossScaleMode mode_;
  double max_;
  double min_;
  double growth_;
  double backoff_;
  std::int64_t interval_;
  double scale_ = 1;
  std::int64_t good_steps_ = 0;
  std::int64_t stuck_ = 0;
};

}  // namespace belay
