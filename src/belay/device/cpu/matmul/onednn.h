#pragma once
// Matrix products through oneDNN's matmul primitive. Primitives are built once per shape and thread
// count and kept; their scratchpads live in the caller's workspace.

#include <cstddef>

#include "belay/device/kernel.h"
#include "belay/device/ops/matmul.h"

namespace belay {

// Operands in the layout they have.
const char* onednn_declines(const MatmulArgs& args);
std::size_t onednn_workspace(const MatmulArgs& args);
void run_onednn(const MatmulArgs& args, KernelContext& context);

// Operands reordered first (in the workspace, within the same call) to the layout the primitive
// asks for.
const char* onednn_packed_declines(const MatmulArgs& args);
std::size_t onednn_packed_workspace(const MatmulArgs& args);
void run_onednn_packed(const MatmulArgs& args, KernelContext& context);

}  // namespace belay
