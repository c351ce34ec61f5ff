#pragma once

#include <vector>

#include "belay/device/cpu/matmul/gemm.h"

namespace belay {

// Adds the kernels that this processor's AVX-512 extensions allow; none elsewhere.
void add_avx512_kernels(std::vector<GemmKernel>& kernels);

}  // namespace belay
