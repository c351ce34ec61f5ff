#pragma once
// Times the fused operators at the shapes of a training step, against the machine's own rates.

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "belay/base/dtype.h"
#include "belay/device/kernel.h"
#include "belay/machine/bandwidth.h"

namespace belay {

struct OpTiming {
  std::string op;
  std::string shape;
  DType dtype = DType::f32;
  std::string kernel;
  double seconds =
      0;  // the best of several calls; each finds its operands in memory, not in a cache
  Cost cost;
  bool memory_bound = true;  // whether memory or arithmetic is the longer side of the roofline
  double bound_seconds = 0;  // what that side needs at the measured rate

  [[nodiscard]] double fraction_of_bound() const { return bound_seconds / seconds; }
};

// The names that `only` accepts below.
std::vector<std::string_view> benched_ops();

// Runs every operator of the list, or the one named `only`, in each of the dtypes, on the cpu
// device. `report` sees each result as it is there. Needs about 600 MB.
void bench_ops(std::string_view only, const std::vector<DType>& dtypes, const MachineRates& rates,
               const std::function<void(const OpTiming&)>& report);

}  // namespace belay
