#include "belay/data/data_config.h"

namespace belay {

std::span<const config::Field> DataConfig::fields() {
  using config::field;
  static const config::Field kFields[] = {
      field<&DataConfig::train>("train", "directory written by belay pack"),
      field<&DataConfig::val>("val", "held-out directory written by belay pack; empty: none"),
      field<&DataConfig::workers>("workers", "reader threads; 0: read in the training thread",
                                  config::between(0, 64)),
      field<&DataConfig::prefetch>("prefetch", "micro-batches read ahead",
                                   config::between(2, 1024)),
      field<&DataConfig::isolate_documents>(
          "isolate_documents", "documents that share a row do not attend to each other"),
  };
  return kFields;
}

}  // namespace belay
