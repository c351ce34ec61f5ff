#pragma once
// For tests: gradients that follow a script, in a number format that overflows above 65504.

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <numbers>
#include <string>
#include <vector>

#include "belay/base/philox.h"
#include "belay/precision/gradient_protection.h"

namespace belay::testing {

// exp of a normal deviate of the given spread.
inline double noise(double spread, std::uint64_t step, std::uint32_t stream = 0) {
  const PhiloxBlock words = random_block({11, 0, stream}, step);
  const double u = (words[0] + 1.0) * 0x1p-32;
  return std::exp(spread * std::sqrt(-2 * std::log(u)) *
                  std::cos(2 * std::numbers::pi * words[1] * 0x1p-32));
}

struct Outcome {
  std::int64_t skipped = 0;
  std::int64_t first_lowering = 0;  // step of the first early halving; 0: none
  std::int64_t first_overflow = 0;
  double scale = 0;
  double highest_scale = 0;
  std::vector<double> scales;  // after each step
};

// Two layers; `norm` gives the second one's, the first has a hundredth of it. A step overflows when
// scale x norm is above 65504.
inline Outcome simulate(GradientProtection& protection, std::int64_t first, std::int64_t last,
                        const std::function<double(std::int64_t)>& norm) {
  Outcome outcome;
  for (std::int64_t step = first; step <= last; ++step) {
    const double scale = protection.scaler().scale();
    const double value = norm(step);
    std::vector<double> squares = {value * value * 1e-4 * scale * scale,
                                   value * value * scale * scale};
    if (value * scale > 65504) {
      squares[1] = std::numeric_limits<double>::infinity();
      protection.overflow(squares, scale);
      ++outcome.skipped;
      if (outcome.first_overflow == 0) outcome.first_overflow = step;
    } else {
      const ScaleChange change = protection.good_step(squares, scale);
      if (change.after < change.before && outcome.first_lowering == 0) {
        outcome.first_lowering = step;
      }
    }
    outcome.highest_scale = std::max(outcome.highest_scale, protection.scaler().scale());
    outcome.scales.push_back(protection.scaler().scale());
  }
  outcome.scale = protection.scaler().scale();
  return outcome;
}

inline const std::vector<std::string>& two_layers() {
  static const std::vector<std::string> kNames = {"layers.0.ffn.up.weight",
                                                  "layers.1.ffn.up.weight"};
  return kNames;
}

inline PrecisionConfig half_config() {
  PrecisionConfig config;
  config.scale_init = 16384;
  return resolved(config, DType::f16);
}

// Good steps in a row, as the scaler's state has them behind the scale.
inline std::int64_t good_steps_of(const LossScaler& scaler) {
  const std::string state = scaler.state();
  return std::stoll(state.substr(state.find(' ')));
}

}  // namespace belay::testing
