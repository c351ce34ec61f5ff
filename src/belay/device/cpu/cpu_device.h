#pragma once
// The host processor as a device. Lanes run their calls inline. `reference` is the same device with
// the plain kernels only.

#include <memory>

#include "belay/device/device.h"

namespace belay {

std::unique_ptr<Device> make_cpu_device();
std::unique_ptr<Device> make_reference_device();

}  // namespace belay
