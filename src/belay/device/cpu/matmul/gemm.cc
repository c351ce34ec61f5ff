#include "belay/device/cpu/matmul/gemm.h"

#include <algorithm>
#include <vector>

#include "belay/base/parallel.h"
#include "belay/device/cpu/matmul/gemm_avx512.h"
#include "belay/device/cpu/matmul/gemm_simd.h"

namespace belay {
namespace {

using Unit = std::uint32_t;

// Depth of one pass of the register tile: a panel of b stays near the first-level cache.
constexpr std::int64_t kBlockUnits = 384;
// At most this many units are packed at once of each operand, so both stay in the last-level cache.
constexpr std::int64_t kPackedUnits = std::int64_t{1} << 21;
constexpr std::int64_t kPackedDepth = 8 * kBlockUnits;
// A piece of work is at most this many panels of a by panels of b...
constexpr std::int64_t kPieceRows = 8;
constexpr std::int64_t kPieceCols = 8;
// ...and smaller while there are fewer than this many: enough to even out the threads' finish.
constexpr std::int64_t kManyPieces = 48;

// Below this many multiply-adds waking the other threads costs more than they bring.
constexpr double kSerialWork = 5e5;

constexpr std::int64_t round_up(std::int64_t value, std::int64_t step) {
  return pieces_of(value, step) * step;
}

// Splits `total` into the fewest equal parts of at most `most`, in multiples of `step`.
std::int64_t even_part(std::int64_t total, std::int64_t most, std::int64_t step) {
  most = std::max(step, most / step * step);
  return round_up(pieces_of(total, pieces_of(total, most)), step);
}

// How a shape is cut. Depends on nothing else.
struct Cut {
  std::int64_t units;    // depth of the product
  std::int64_t block;    // units per pass of the tile
  std::int64_t depth;    // units packed at once
  std::int64_t rows;     // rows of a packed at once
  std::int64_t cols;     // columns of b packed at once
  std::int64_t a_units;  // workspace parts, in units
  std::int64_t b_units;
  std::int64_t sum_units;  // f32 sums of unfinished bf16 results

  Cut(const GemmKernel& kernel, const MatmulArgs& args) {
    units = pieces_of(args.k(), kernel.k_per_unit);
    block = even_part(units, kBlockUnits, 4);
    depth = even_part(units, kPackedDepth / block * block, block);
    rows = even_part(args.m(), kPackedUnits / depth, kernel.tile_rows);
    cols = even_part(args.n(), kPackedUnits / depth, kernel.tile_cols);
    a_units = round_up(rows * depth, 32);
    b_units = cols * depth;
    sum_units = args.dst.dtype != DType::f32 && units > block ? rows * cols : 0;
  }
};

// Packs lines [first, first + lines) over k [first_k, first_k + k).
GemmSource part_of(const Tensor& tensor, bool k_contiguous, std::int64_t first, std::int64_t lines,
                   std::int64_t first_k, std::int64_t k) {
  GemmSource source;
  source.stride = tensor.dim(1);
  source.k_contiguous = k_contiguous;
  source.lines = lines;
  source.k = k;
  const std::int64_t at =
      k_contiguous ? first * source.stride + first_k : first_k * source.stride + first;
  source.data = tensor.as<std::byte>() + static_cast<std::size_t>(at) * size_of(tensor.dtype);
  return source;
}

template <class Body>
void for_pieces(bool serial, std::int64_t pieces, const Body& body) {
  if (serial) {
    for (std::int64_t piece = 0; piece < pieces; ++piece) body(piece);
  } else {
    parallel_for(pieces, body);
  }
}

class Product {
 public:
  Product(const GemmKernel& kernel, const MatmulArgs& args, KernelContext& context)
      : kernel_(kernel), args_(args), cut_(kernel, args) {
    BELAY_CHECK(context.workspace_bytes >= gemm_workspace(kernel, args));
    a_ = reinterpret_cast<Unit*>(context.workspace);
    b_ = a_ + cut_.a_units;
    sums_ = reinterpret_cast<float*>(b_ + cut_.b_units);
    serial_ = args.cost().flops < 2 * kSerialWork;
  }

  void run() {
    for (row_ = 0; row_ < args_.m(); row_ += cut_.rows) {
      for (col_ = 0; col_ < args_.n(); col_ += cut_.cols) {
        for (unit_ = 0; unit_ < cut_.units; unit_ += cut_.depth) {
          rows_ = std::min(cut_.rows, args_.m() - row_);
          cols_ = std::min(cut_.cols, args_.n() - col_);
          depth_ = std::min(cut_.depth, cut_.units - unit_);
          pack();
          multiply();
        }
      }
    }
  }

 private:
  void pack();
  void multiply();
  void multiply_piece(std::int64_t first_row_panel, std::int64_t row_panels,
                      std::int64_t first_col_panel, std::int64_t col_panels);
  [[nodiscard]] GemmTile tile_at(std::int64_t row, std::int64_t col, bool first, bool last) const;

  const GemmKernel& kernel_;
  const MatmulArgs& args_;
  const Cut cut_;
  bool serial_ = false;
  Unit* a_;
  Unit* b_;
  float* sums_;
  // The part being packed and multiplied.
  std::int64_t row_ = 0, col_ = 0, unit_ = 0;
  std::int64_t rows_ = 0, cols_ = 0, depth_ = 0;
  // What the packed buffers hold.
  std::int64_t packed_row_ = -1, packed_col_ = -1, packed_a_unit_ = -1, packed_b_unit_ = -1;
};

void Product::pack() {
  constexpr std::int64_t kPanels = 8;  // per piece
  const bool new_a = packed_row_ != row_ || packed_a_unit_ != unit_;
  const bool new_b = packed_col_ != col_ || packed_b_unit_ != unit_;
  const std::int64_t a_lines = kernel_.tile_rows * kPanels;
  const std::int64_t b_lines = kernel_.tile_cols * kPanels;
  const std::int64_t a_pieces = new_a ? pieces_of(rows_, a_lines) : 0;
  const std::int64_t b_pieces = new_b ? pieces_of(cols_, b_lines) : 0;
  const std::int64_t first_k = unit_ * kernel_.k_per_unit;
  const std::int64_t k = std::min(depth_ * kernel_.k_per_unit, args_.k() - first_k);
  for_pieces(serial_, a_pieces + b_pieces, [&](std::int64_t piece) {
    if (piece < a_pieces) {
      const std::int64_t line = piece * a_lines;
      kernel_.pack(part_of(args_.a, !args_.transpose_a, row_ + line,
                           std::min(a_lines, rows_ - line), first_k, k),
                   kernel_.tile_rows, kernel_.tile_rows * depth_, false, a_ + line * depth_);
    } else {
      const std::int64_t line = (piece - a_pieces) * b_lines;
      kernel_.pack(part_of(args_.b, args_.transpose_b, col_ + line, std::min(b_lines, cols_ - line),
                           first_k, k),
                   kernel_.tile_cols, kernel_.tile_cols * depth_, true, b_ + line * depth_);
    }
  });
  packed_row_ = row_;
  packed_col_ = col_;
  packed_a_unit_ = packed_b_unit_ = unit_;
}

void Product::multiply() {
  const std::int64_t row_panels = pieces_of(rows_, kernel_.tile_rows);
  const std::int64_t col_panels = pieces_of(cols_, kernel_.tile_cols);
  std::int64_t high = kPieceRows;
  std::int64_t wide = kPieceCols;
  while (pieces_of(row_panels, high) * pieces_of(col_panels, wide) < kManyPieces &&
         (high > 2 || wide > 2)) {
    (high >= wide ? high : wide) /= 2;
  }
  const std::int64_t down = pieces_of(row_panels, high);
  for_pieces(serial_, down * pieces_of(col_panels, wide), [&](std::int64_t piece) {
    const std::int64_t row = piece % down * high;
    const std::int64_t col = piece / down * wide;
    multiply_piece(row, std::min(high, row_panels - row), col, std::min(wide, col_panels - col));
  });
}

void Product::multiply_piece(std::int64_t first_row_panel, std::int64_t row_panels,
                             std::int64_t first_col_panel, std::int64_t col_panels) {
  for (std::int64_t unit = 0; unit < depth_; unit += cut_.block) {
    const std::int64_t units = std::min(cut_.block, depth_ - unit);
    const bool first = unit_ + unit == 0;
    const bool last = unit_ + unit + units == cut_.units;
    for (std::int64_t col_panel = 0; col_panel < col_panels; ++col_panel) {
      const std::int64_t col = (first_col_panel + col_panel) * kernel_.tile_cols;
      const Unit* b = b_ + col * depth_ + unit * kernel_.tile_cols;
      for (std::int64_t row_panel = 0; row_panel < row_panels; ++row_panel) {
        const std::int64_t row = (first_row_panel + row_panel) * kernel_.tile_rows;
        const std::int64_t rows = std::min(kernel_.tile_rows, rows_ - row);
        const Unit* a = a_ + row * depth_ + unit * rows;
        kernel_.tile(rows, a, b, units, tile_at(row, col, first, last));
      }
    }
  }
}

// f32 results gather in dst itself; others in `sums_` until the last pass.
GemmTile Product::tile_at(std::int64_t row, std::int64_t col, bool first, bool last) const {
  const std::int64_t n = args_.n();
  const std::int64_t at = (row_ + row) * n + col_ + col;
  void* dst = args_.dst.as<std::byte>() + static_cast<std::size_t>(at) * size_of(args_.dst.dtype);
  float* sums = sums_ + row * cut_.cols + col;
  const bool gather_in_dst = args_.dst.dtype == DType::f32;
  GemmTile tile;
  tile.cols = std::min(kernel_.tile_cols, cols_ - col);
  if (first ? args_.accumulate : gather_in_dst) {
    tile.in = dst;
    tile.in_type = args_.dst.dtype;
    tile.in_stride = n;
  } else if (!first) {
    tile.in = sums;
    tile.in_stride = cut_.cols;
  }
  if (last || gather_in_dst) {
    tile.out = dst;
    tile.out_type = args_.dst.dtype;
    tile.out_stride = n;
  } else {
    tile.out = sums;
    tile.out_stride = cut_.cols;
  }
  if (last && !args_.bias.empty()) {
    tile.bias = args_.bias.as<std::byte>() +
                static_cast<std::size_t>(col_ + col) * size_of(args_.bias.dtype);
    tile.bias_type = args_.bias.dtype;
  }
  return tile;
}

}  // namespace

std::span<const GemmKernel> gemm_kernels() {
  static const std::vector<GemmKernel> kKernels = [] {
    std::vector<GemmKernel> kernels;
    add_avx512_kernels(kernels);
    add_simd_kernels(kernels);
    return kernels;
  }();
  return kKernels;
}

const GemmKernel& gemm_kernel_for(DType src) {
  const auto kernels = gemm_kernels();
  const auto found = std::find_if(kernels.begin(), kernels.end(),
                                  [src](const GemmKernel& kernel) { return kernel.src == src; });
  BELAY_CHECK(found != kernels.end());
  return *found;
}

const char* gemm_declines(const MatmulArgs& args) {
  const auto fits = [](DType dtype) { return dtype == DType::f32 || dtype == DType::bf16; };
  if (!fits(args.a.dtype) || !fits(args.dst.dtype)) return "dtype is neither f32 nor bf16";
  if (!args.bias.empty() && !fits(args.bias.dtype)) return "bias is neither f32 nor bf16";
  if (args.m() == 0 || args.n() == 0 || args.k() == 0) return "an empty operand";
  return nullptr;
}

std::size_t gemm_workspace(const GemmKernel& kernel, const MatmulArgs& args) {
  const Cut cut(kernel, args);
  return static_cast<std::size_t>(cut.a_units + cut.b_units + cut.sum_units) * sizeof(Unit);
}

void run_gemm(const GemmKernel& kernel, const MatmulArgs& args, KernelContext& context) {
  Product(kernel, args, context).run();
}

std::size_t gemm_workspace(const MatmulArgs& args) {
  return gemm_workspace(gemm_kernel_for(args.a.dtype), args);
}

void run_gemm(const MatmulArgs& args, KernelContext& context) {
  run_gemm(gemm_kernel_for(args.a.dtype), args, context);
}

}  // namespace belay
