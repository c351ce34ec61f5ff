#pragma once
// belay's own matrix product: both operands are packed into panels, a register tile runs down the
// panels (Goto & van de Geijn, "Anatomy of High-Performance Matrix Multiplication", ACM TOMS 34(3),
// 2008). All memory comes from the workspace; the cut into pieces and the order of the sums depend
// on the shape alone, so the result has the same bits for any number of threads.
//
// Panels consist of 32-bit units: one f32, or two consecutive bf16 along k. f16 is widened to f32
// while it is packed.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "belay/device/kernel.h"
#include "belay/device/ops/matmul.h"

namespace belay {

// What a tile does with its sums: value = sum (+ in) (+ bias), written to `out`.
struct GemmTile {
  const void* in = nullptr;    // first element, or null
  const void* bias = nullptr;  // one per column, or null
  void* out = nullptr;
  std::int64_t in_stride = 0;  // elements from row to row
  std::int64_t out_stride = 0;
  std::int64_t cols = 0;  // at most tile_cols
  DType in_type = DType::f32;
  DType bias_type = DType::f32;
  DType out_type = DType::f32;
};

// A matrix of `lines` lines (rows of a, columns of b) by k, as it lies in memory.
struct GemmSource {
  const void* data = nullptr;  // element (0, 0)
  std::int64_t lines = 0;
  std::int64_t k = 0;
  std::int64_t stride = 0;    // elements between lines, or between k when !k_contiguous
  bool k_contiguous = false;  // consecutive k lie side by side; else consecutive lines do
};

// Code for one processor generation and one type of operand.
struct GemmKernel {
  std::string_view name;
  DType src = DType::f32;
  std::int64_t tile_rows = 0;
  std::int64_t tile_cols = 0;
  std::int64_t k_per_unit = 1;
  // Packs source.lines lines as one or more panels of `width` lines (the last may have fewer):
  // dst[panel][unit][line of panel]. Units beyond k are zero. A panel takes panel_stride units;
  // with `pad` a narrow last panel is filled to `width` with zeros, else its lines lie densely.
  void (*pack)(const GemmSource& source, std::int64_t width, std::int64_t panel_stride, bool pad,
               std::uint32_t* dst) = nullptr;
  // Multiplies a panel of `rows` lines with a padded panel of tile_cols lines over `units` units.
  void (*tile)(std::int64_t rows, const std::uint32_t* a, const std::uint32_t* b,
               std::int64_t units, const GemmTile& tile) = nullptr;
};

// The kernels this processor can run, fastest first; the first of each operand type is used.
std::span<const GemmKernel> gemm_kernels();
const GemmKernel& gemm_kernel_for(DType src);

const char* gemm_declines(const MatmulArgs& args);
std::size_t gemm_workspace(const MatmulArgs& args);
void run_gemm(const MatmulArgs& args, KernelContext& context);

// The same with a given kernel: for tests and comparisons.
std::size_t gemm_workspace(const GemmKernel& kernel, const MatmulArgs& args);
void run_gemm(const GemmKernel& kernel, const MatmulArgs& args, KernelContext& context);

}  // namespace belay
