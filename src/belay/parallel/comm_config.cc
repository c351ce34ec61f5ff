#include "belay/parallel/comm_config.h"

namespace belay {

std::span<const config::Field> CommConfig::fields() {
  using config::between;
  using config::field;
  static const config::Field kFields[] = {
      field<&CommConfig::timeout_s>(
          "timeout_s", "seconds after which a rank that others wait for counts as lost",
          between(0.1, 86400)),
      field<&CommConfig::bucket_mb>("bucket_mb", "MB of gradients that are summed together",
                                    between(0.001, 4096)),
      field<&CommConfig::buckets>("buckets", "buckets that may be under way at once",
                                  between(1, 1024)),
      field<&CommConfig::overlap>("overlap", "sum gradients while backward runs; false: after it"),
      field<&CommConfig::order_stable>(
          "order_stable", "the same bits for every algorithm and size of bucket, at some cost"),
  };
  return kFields;
}

}  // namespace belay
