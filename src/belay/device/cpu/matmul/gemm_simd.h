#pragma once

#include <vector>

#include "belay/device/cpu/matmul/gemm.h"

namespace belay {

// Adds kernels that run on every processor, written with Highway for the widest instruction set
// there is: one for f32 operands and one that widens bf16 operands to f32 as it packs them.
void add_simd_kernels(std::vector<GemmKernel>& kernels);

}  // namespace belay
