#include "belay/snapshot/snapshot_config.h"

namespace belay {
namespace {

// In the order of OnFailure.
constexpr std::string_view kOnFailure[] = {"stop", "continue"};

}  // namespace

std::span<const config::Field> SnapshotConfig::fields() {
  using config::field;
  static const config::Field kFields[] = {
      field<&SnapshotConfig::on_failure>("on_failure", "when a snapshot cannot be written",
                                         config::one_of(kOnFailure)),
  };
  return kFields;
}

}  // namespace belay
