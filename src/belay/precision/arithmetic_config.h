#pragma once
// [precision], the part that says how f16 arithmetic behaves.

#include <span>

#include "belay/base/config.h"
#include "belay/device/kernel.h"
#include "belay/model/model_config.h"
#include "belay/model/pass.h"

namespace belay {

struct ArithmeticConfig {
  Overflow overflow = Overflow::infinity;
  double norm_eps_floor = 1e-4;
  bool anomaly = false;
  Protection protection{};

  static constexpr std::string_view kSection = "precision";
  static std::span<const config::Field> fields();
};

// The model as it computes in `dtype`: with f16 the norms' eps is at least the floor, because a
// row whose variance is near nothing would be scaled beyond what f16 holds.
ModelConfig in_precision(ModelConfig model, DType dtype, const ArithmeticConfig& config = {});

}  // namespace belay
