#include "belay/base/version.h"

namespace belay {

std::string_view engine_version() {
  return BELAY_VERSION;
}

}  // namespace belay
