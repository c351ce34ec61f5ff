#include "belay/observe/observe_config.h"

namespace belay {

std::span<const config::Field> ObserveConfig::fields() {
  using config::field;
  static const config::Field kFields[] = {
      field<&ObserveConfig::tensorboard>("tensorboard", "also write TensorBoard event files"),
      field<&ObserveConfig::console_every>(
          "console_every", "steps between lines where there is no terminal; 0: none",
          config::at_least(0)),
      field<&ObserveConfig::timeline_spans>("timeline_spans",
                                            "room for this many spans when --timeline records",
                                            config::between(1, 1e8)),
      field<&ObserveConfig::memory_growth_warning>(
          "memory_growth_warning", "MiB per 1000 steps of steady growth that is worth a warning",
          config::positive()),
  };
  return kFields;
}

}  // namespace belay
