#include "belay/device/device.h"

#include "belay/base/error.h"
#include "belay/base/log.h"
#include "belay/device/cpu/cpu_device.h"
#include "belay/device/finite.h"
#include "belay/device/guard/guard_device.h"

namespace belay {

std::unique_ptr<Device> make_device(std::string_view name) {
  if (name == "cpu") return make_cpu_device();
  if (name == "reference") return make_reference_device();
  if (name == "guard") return make_guard_device();
  fail(ExitCode::usage, "unknown device '{}'; this build has cpu, reference and guard", name);
}

void Lane::execute(const OpCall& call, KernelContext& context) {
  context.overflow = device().overflow();
  context.overflowed = false;
  const auto begin = std::chrono::steady_clock::now();
  call.invoke(call, context);
  const bool overflowed = settle_halves(call, context.overflow) || context.overflowed;
  const auto end = std::chrono::steady_clock::now();
  ++(size_of(call.arithmetic) == 2 ? counts_.low_precision : counts_.full_precision);
  if (overflowed) ++counts_.overflowing;
  if (recorder_ != nullptr) recorder_->record(call, begin, end);
}

namespace detail {

void fail_all_declined(std::string_view op, std::string_view device, std::string_view last_reason) {
  fail(ExitCode::failure, "no kernel of device '{}' takes this {} call: {}", device, op,
       last_reason);
}

void log_declined(std::string_view op, std::string_view kernel, std::string_view reason) {
  static const bool kWanted = log::topic_enabled("kernels");
  if (kWanted) log::info("{}: {} declines: {}", op, kernel, reason);
}

}  // namespace detail
}  // namespace belay
