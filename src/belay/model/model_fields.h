#pragma once
// The [model] section's field table over ModelConfig.

#include <span>

#include "belay/base/config.h"
#include "belay/model/model_config.h"

namespace belay {

std::span<const config::Field> model_fields();

}  // namespace belay
