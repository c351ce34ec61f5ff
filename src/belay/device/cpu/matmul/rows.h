#pragma once
// Matrix products of a few rows with weights stored as [n, k], as generation needs them: every
// weight is read once, straight from where it lies, so memory bandwidth is the limit.

#include <cstddef>

#include "belay/device/kernel.h"
#include "belay/device/ops/matmul.h"

namespace belay {

const char* rows_declines(const MatmulArgs& args);
std::size_t rows_workspace(const MatmulArgs& args);
void run_rows(const MatmulArgs& args, KernelContext& context);

}  // namespace belay
