#pragma once
// A device that keeps the engine honest: calls are deferred until a wait, run with the reference
// kernels, and its memory is inaccessible (page protection) except while they run.

#include <memory>

#include "belay/device/device.h"

namespace belay {

std::unique_ptr<Device> make_guard_device();

}  // namespace belay
