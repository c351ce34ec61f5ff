#pragma once
// For tests: runs every kernel that the host devices have for an operator.

#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "belay/device/device.h"
#include "belay/device/host_pool.h"

namespace belay {

// Calls body(run) for every kernel of Args on the reference and cpu devices. run(args) checks and
// executes one call on host memory and returns false when the kernel declines it. Each device must
// have a kernel that takes a call.
template <class Args, class Body>
void for_each_kernel(const std::string& label, Body&& body) {
  for (const char* device_name : {"reference", "cpu"}) {
    const auto device = make_device(device_name);
    int taken = 0;
    for (const auto& kernel : std::get<Candidates<Args>>(device->kernels().candidates)) {
      SCOPED_TRACE(label + ", " + device_name + " kernel " + std::string(kernel.name));
      body([&](const Args& args) {
        args.check();
        if (kernel.declines != nullptr && kernel.declines(args) != nullptr) return false;
        ++taken;
        HostPool pool;
        const std::size_t bytes = kernel.workspace != nullptr ? kernel.workspace(args) : 0;
        const Tensor scratch = pool.allocate(DType::u8, {static_cast<std::int64_t>(bytes)});
        KernelContext context{scratch.as<std::byte>(), bytes};
        kernel.run(args, context);
        return true;
      });
    }
    EXPECT_GT(taken, 0) << label << ": every kernel of " << device_name << " declines";
  }
}

}  // namespace belay
