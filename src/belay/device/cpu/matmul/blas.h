#pragma once
// f32 matrix products through BLAS-style calls: OpenBLAS and oneDNN's sgemm. A bias is written
// into (or added to) the rows of dst first, and the product added to that.

#include "belay/device/kernel.h"
#include "belay/device/ops/matmul.h"

namespace belay {

const char* blas_declines(const MatmulArgs& args);
void run_openblas(const MatmulArgs& args, KernelContext& context);
void run_dnnl_sgemm(const MatmulArgs& args, KernelContext& context);

}  // namespace belay
