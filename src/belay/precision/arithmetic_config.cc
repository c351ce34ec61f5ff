#include "belay/precision/arithmetic_config.h"

#include <algorithm>

namespace belay {

std::span<const config::Field> ArithmeticConfig::fields() {
  using C = ArithmeticConfig;
  using config::field;
  // In the order of the enumerators.
  static constexpr std::string_view kOverflows[] = {"inf", "saturate"};
  static const config::Field kFields[] = {
      field<&C::overflow>("overflow",
                          "f16 results beyond 65504: inf, or saturate (65504 and a flag, as older "
                          "accelerators do)",
                          config::one_of(kOverflows)),
      field<&C::norm_eps_floor>("norm_eps_floor", "least eps of the norms when computing in f16",
                                config::between(0, 1)),
      field<&C::protection, &Protection::norms>(
          "protect_norms", "statistics of norms in f32; else in the compute type"),
      field<&C::protection, &Protection::softmax>(
          "protect_softmax", "attention scores and logits in f32; else in the compute type"),
      field<&C::protection, &Protection::reductions>(
          "protect_reductions", "gradients of biases summed in f32; else in the compute type"),
      field<&C::anomaly>("anomaly",
                         "look through every result and name the first that is not finite; slow"),
  };
  return kFields;
}

ModelConfig in_precision(ModelConfig model, DType dtype, const ArithmeticConfig& config) {
  if (dtype == DType::f16) model.norm_eps = std::max(model.norm_eps, config.norm_eps_floor);
  return model;
}

}  // namespace belay
