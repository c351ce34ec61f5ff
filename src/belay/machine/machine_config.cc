#include "belay/machine/machine_config.h"

namespace belay {

std::span<const config::Field> MachineConfig::fields() {
  using config::field;
  // The candidates of device/cpu/matmul/candidates.cc.
  static constexpr std::string_view kMatmuls[] = {
      "auto", "belay", "onednn", "onednn-packed", "openblas", "dnnl-sgemm", "reference"};
  static const config::Field kFields[] = {
      field<&MachineConfig::threads>("threads", "compute threads; 0: all cores",
                                     config::between(0, 4096)),
      field<&MachineConfig::matmul>(
          "matmul", "auto: the fastest measured per shape; else one candidate for all that take it",
          config::one_of(kMatmuls)),
      field<&MachineConfig::cache>(
          "cache", "file that keeps the measured choices; empty: belay/ in the user's cache"),
  };
  return kFields;
}

}  // namespace belay
