#pragma once
// Vectors whose result is known for every collective, to see whether a call was right: integers
// whose sums over all ranks are exact in every type.

#include <cstdint>

#include "belay/base/dtype.h"
#include "belay/comm/collective.h"
#include "belay/comm/schedule.h"

namespace belay::comm {

class KnownValues {
 public:
  // count: of the whole vector. Sums; root is rank 0.
  KnownValues(Collective collective, DType dtype, std::int64_t count, int rank, int ranks);

  // Before the call. Both have room for `count` elements.
  void fill_input(void* input) const;
  // What an all-reduce in place begins with; else what no result is.
  void fill_output(void* output, bool in_place) const;
  // After it: elements of this rank's output that are not what they should be.
  [[nodiscard]] std::int64_t wrong(const void* output) const;

 private:
  [[nodiscard]] int sum(std::int64_t i) const;

  Collective collective_;
  DType dtype_;
  std::int64_t count_;
  int rank_;
  int ranks_;
  Blocks blocks_;
};

}  // namespace belay::comm
