#pragma once
// The step that benchmarks of whole models measure.

#include <cstdint>
#include <string>

#include "belay/train/program.h"

namespace belay {

// A preset model as it trains in `compute`, `batch` rows of `seq_len` tokens at a time. A preset
// that has fewer positions gets as many as a row, which the log says. Error(usage) for an unknown
// preset.
ProgramConfig bench_program(const std::string& model, std::int64_t batch, std::int64_t seq_len,
                            DType compute);

}  // namespace belay
