#pragma once
// Times the fused operators at the shapes of a training step, against the machine's own rates and
// against the same mathematics as separate plain operators (device/plain/).

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
  double plain_seconds = 0;    // of the plain operators, likewise; 0: the operator is one itself
  std::size_t peak_bytes = 0;  // of intermediate results beyond the operands
  std::size_t plain_peak_bytes = 0;  // of the plain operators, what backward needs included
  Cost cost;
  bool memory_bound = true;  // whether memory or arithmetic is the longer side of the roofline
  double bound_seconds = 0;  // what that side needs at the measured rate

  [[nodiscard]] double fraction_of_bound() const { return bound_seconds / seconds; }
};

// The names that `only` accepts below.
std::vector<std::string_view> benched_ops();

// Runs every operator of the list, or the one named `only`, in each of the dtypes, on the cpu
// device. `report` sees each result as it is there. Needs about 2.5 GB, most of it for the scores
// of plain attention.
void bench_ops(std::string_view only, const std::vector<DType>& dtypes, const MachineRates& rates,
               const std::function<void(const OpTiming&)>& report);

}  // namespace belay
