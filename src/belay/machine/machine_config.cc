#include "belay/machine/machine_config.h"

namespace belay {

std::span<const config::Field> MachineConfig::fields() {
  using config::field;
  static const config::Field kFields[] = {
      field<&MachineConfig::threads>("threads", "compute threads; 0: all cores",
                                     config::between(0, 4096)),
      field<&MachineConfig::matmul>(
          "matmul", "auto: the fastest measured per shape; else the name of one candidate"),
      field<&MachineConfig::cache>(
          "cache", "file that keeps the measured choices; empty: belay/ in the user's cache"),
  };
  return kFields;
}

}  // namespace belay
