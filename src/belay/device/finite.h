#pragma once
// Looks through results in host memory for what is not a number.

#include "belay/base/tensor.h"
#include "belay/device/kernel.h"
#include "belay/device/ops/elementwise.h"
#include "belay/device/ops/norm.h"

namespace belay {

// Whether an element is infinite or NaN; never for integers.
bool has_non_finite(const Rows& rows);

// f16 only: +-65504 in the place of infinities, 0 in that of NaN. Returns whether there was any. A
// value that saturates while it is stored has the same bits.
bool saturate(const Rows& rows);

// What a call has left in its f16 results, settled as `overflow` says. Returns whether any was not
// finite.
bool settle_halves(const OpCall& call, Overflow overflow);

// A norm takes statistics of the sum that it stores. Where that saturates, run_add(AddArgs,
// KernelContext&) stores it first, and what is left to do is the norm of the settled sum.
template <class RunAdd>
NormForwardArgs with_settled_sum(NormForwardArgs args, KernelContext& context, RunAdd&& run_add) {
  if (context.overflow != Overflow::saturate || args.sum.empty() || args.sum.dtype != DType::f16) {
    return args;
  }
  run_add(AddArgs{args.src, args.residual, args.sum}, context);
  const std::int64_t elements = args.sum.elements();
  if (saturate({args.sum.data, DType::f16, 1, elements, elements})) context.overflowed = true;
  args.src = args.sum;
  args.residual = {};
  args.sum = {};
  return args;
}

}  // namespace belay
