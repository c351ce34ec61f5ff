#include "belay/device/cpu/matmul/gemm.h"

#include <algorithm>
#include <vector>

#include "belay/base/parallel.h"
#include "belay/device/cpu/matmul/gemm_avx512.h"
#include "belay/device/cpu/matmul/gemm_simd.h"

namespace belay {
namespace {

using Unit = std::uint32_t;

// Depth of one pass of the register tile. Deeper passes touch dst less often; with this one a panel
// of either operand still leaves room in a second-level cache.
constexpr std::int64_t kDepth = 1024;
// A thread packs this many units of the larger operand for itself, to stay in its second-level
// cache...
constexpr std::int64_t kOwnUnits = 48 * 1024;
// ...and multiplies them with this many of the smaller one, which all threads share, at most.
constexpr std::int64_t kSharedUnits = std::int64_t{1} << 21;
constexpr std::int64_t kPiecesPerThread = 12;  // enough to even out the threads' finish
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

// One operand as the product sees it: lines (rows of a, columns of b) by k.
struct Side {
  const Tensor* tensor = nullptr;
  bool k_contiguous = false;
  bool pad = false;
  std::int64_t lines = 0;
  std::int64_t width = 0;  // lines per panel
};

// How a shape is cut. The depth of the passes, which decides the order of the sums, depends on the
// shape alone; the pieces may depend on the number of threads, as they change no sum.
struct Cut {
  Side own;     // packed piece by piece
  Side shared;  // packed by all threads together
  bool own_is_a = false;
  bool serial = false;
  std::int64_t units = 0;          // depth of the product
  std::int64_t depth = 0;          // units per pass
  std::int64_t own_lines = 0;      // per piece
  std::int64_t shared_lines = 0;   // packed at once
  std::int64_t piece_lines = 0;    // of the shared side, per piece
  std::int64_t own_buffer = 0;     // units of workspace: one such per thread,
  std::int64_t shared_buffer = 0;  // one,
  std::int64_t sums_buffer = 0;    // f32 sums of unfinished narrow results

  Cut(const GemmKernel& kernel, const MatmulArgs& args) {
    const Side a{&args.a, !args.transpose_a, false, args.m(), kernel.tile_rows};
    const Side b{&args.b, args.transpose_b, true, args.n(), kernel.tile_cols};
    own_is_a = a.lines >= b.lines;
    // The narrow strips that a piece packs come quicker out of lines that lie along k.
    const bool similar = std::max(a.lines, b.lines) <= 2 * std::min(a.lines, b.lines);
    if (similar && a.k_contiguous != b.k_contiguous) own_is_a = a.k_contiguous;
    own = own_is_a ? a : b;
    shared = own_is_a ? b : a;
    units = pieces_of(args.k(), kernel.k_per_unit);
    depth = even_part(units, kDepth, 4);
    own_lines = even_part(own.lines, kOwnUnits / depth, own.width);
    shared_lines = even_part(shared.lines, kSharedUnits / depth, shared.width);
    serial = args.cost().flops < 2 * kSerialWork;
    const std::int64_t wanted = serial ? 1 : kPiecesPerThread * thread_count();
    const std::int64_t splits = std::max<std::int64_t>(1, wanted / pieces_of(own.lines, own_lines));
    piece_lines = even_part(shared_lines, shared_lines / splits, shared.width);
    own_buffer = round_up(own_lines * depth, 32);
    shared_buffer = round_up(shared_lines * depth, 32);
    sums_buffer = args.dst.dtype != DType::f32 && units > depth ? args.dst.elements() : 0;
  }
};

GemmSource part_of(const Side& side, std::int64_t first, std::int64_t lines, std::int64_t first_k,
                   std::int64_t k) {
  GemmSource source;
  source.stride = side.tensor->dim(1);
  source.k_contiguous = side.k_contiguous;
  source.lines = lines;
  source.k = k;
  const std::int64_t at =
      side.k_contiguous ? first * source.stride + first_k : first_k * source.stride + first;
  source.data =
      side.tensor->as<std::byte>() + static_cast<std::size_t>(at) * size_of(side.tensor->dtype);
  return source;
}

class Product {
 public:
  Product(const GemmKernel& kernel, const MatmulArgs& args, KernelContext& context)
      : kernel_(kernel), args_(args), cut_(kernel, args) {
    BELAY_CHECK(context.workspace_bytes >= gemm_workspace(kernel, args));
    shared_ = reinterpret_cast<Unit*>(context.workspace);
    own_ = shared_ + cut_.shared_buffer;
    sums_ = reinterpret_cast<float*>(own_ + thread_count() * cut_.own_buffer);
  }

  void run() {
    for (shared_line_ = 0; shared_line_ < cut_.shared.lines; shared_line_ += cut_.shared_lines) {
      shared_lines_ = std::min(cut_.shared_lines, cut_.shared.lines - shared_line_);
      for (unit_ = 0; unit_ < cut_.units; unit_ += cut_.depth) {
        depth_ = std::min(cut_.depth, cut_.units - unit_);
        pack_shared();
        multiply();
      }
    }
  }

 private:
  template <class Body>
  void for_pieces(std::int64_t pieces, const Body& body) const {
    if (cut_.serial) {
      for (std::int64_t piece = 0; piece < pieces; ++piece) body(piece);
    } else {
      parallel_for(pieces, body);
    }
  }
  void pack(const Side& side, std::int64_t first, std::int64_t lines, Unit* to) const {
    const std::int64_t first_k = unit_ * kernel_.k_per_unit;
    const std::int64_t k = std::min(depth_ * kernel_.k_per_unit, args_.k() - first_k);
    kernel_.pack(part_of(side, first, lines, first_k, k), side.width, side.width * depth_, side.pad,
                 to);
  }
  void pack_shared();
  void multiply();
  void multiply_piece(const Unit* own, std::int64_t own_first, std::int64_t own_lines,
                      std::int64_t shared_first, std::int64_t shared_lines) const;
  [[nodiscard]] GemmTile tile_at(std::int64_t row, std::int64_t col) const;

  const GemmKernel& kernel_;
  const MatmulArgs& args_;
  const Cut cut_;
  Unit* shared_;
  Unit* own_;
  float* sums_;
  // The part being packed and multiplied.
  std::int64_t shared_line_ = 0, shared_lines_ = 0;
  std::int64_t unit_ = 0, depth_ = 0;
};

void Product::pack_shared() {
  const std::int64_t lines = 4 * cut_.shared.width;
  for_pieces(pieces_of(shared_lines_, lines), [&](std::int64_t piece) {
    const std::int64_t first = piece * lines;
    pack(cut_.shared, shared_line_ + first, std::min(lines, shared_lines_ - first),
         shared_ + first * depth_);
  });
}

void Product::multiply() {
  const std::int64_t across = pieces_of(shared_lines_, cut_.piece_lines);
  for_pieces(across * pieces_of(cut_.own.lines, cut_.own_lines), [&](std::int64_t piece) {
    const std::int64_t first = piece / across * cut_.own_lines;
    const std::int64_t lines = std::min(cut_.own_lines, cut_.own.lines - first);
    const std::int64_t shared_first = piece % across * cut_.piece_lines;
    Unit* own = own_ + thread_index() * cut_.own_buffer;
    pack(cut_.own, first, lines, own);
    multiply_piece(own, first, lines, shared_first,
                   std::min(cut_.piece_lines, shared_lines_ - shared_first));
  });
}

void Product::multiply_piece(const Unit* own, std::int64_t own_first, std::int64_t own_lines,
                             std::int64_t shared_first, std::int64_t shared_lines) const {
  for (std::int64_t line = shared_first; line < shared_first + shared_lines;
       line += cut_.shared.width) {
    const Unit* shared = shared_ + line * depth_;
    for (std::int64_t own_line = 0; own_line < own_lines; own_line += cut_.own.width) {
      const Unit* panel = own + own_line * depth_;
      const std::int64_t across = shared_line_ + line;
      const std::int64_t row = cut_.own_is_a ? own_first + own_line : across;
      const std::int64_t col = cut_.own_is_a ? across : own_first + own_line;
      kernel_.tile(std::min(kernel_.tile_rows, args_.m() - row), cut_.own_is_a ? panel : shared,
                   cut_.own_is_a ? shared : panel, depth_, tile_at(row, col));
    }
  }
}

// f32 results gather in dst itself; others in `sums_` until the last pass.
GemmTile Product::tile_at(std::int64_t row, std::int64_t col) const {
  const bool first = unit_ == 0;
  const bool last = unit_ + depth_ == cut_.units;
  const bool gather_in_dst = args_.dst.dtype == DType::f32;
  const std::int64_t at = row * args_.n() + col;
  void* dst = args_.dst.as<std::byte>() + static_cast<std::size_t>(at) * size_of(args_.dst.dtype);
  GemmTile tile;
  tile.cols = std::min(kernel_.tile_cols, args_.n() - col);
  tile.in_stride = tile.out_stride = args_.n();
  if (first ? args_.accumulate : gather_in_dst) {
    tile.in = dst;
    tile.in_type = args_.dst.dtype;
  } else if (!first) {
    tile.in = sums_ + at;
  }
  if (last || gather_in_dst) {
    tile.out = dst;
    tile.out_type = args_.dst.dtype;
  } else {
    tile.out = sums_ + at;
  }
  if (last && !args_.bias.empty()) {
    tile.bias =
        args_.bias.as<std::byte>() + static_cast<std::size_t>(col) * size_of(args_.bias.dtype);
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
  if (!is_storage(args.a.dtype) || !is_storage(args.dst.dtype)) {
    return "dtype is not f32, bf16 or f16";
  }
  if (!args.bias.empty() && !is_storage(args.bias.dtype)) return "bias is not f32, bf16 or f16";
  if (args.m() == 0 || args.n() == 0 || args.k() == 0) return "an empty operand";
  return nullptr;
}

std::size_t gemm_workspace(const GemmKernel& kernel, const MatmulArgs& args) {
  const Cut cut(kernel, args);
  return static_cast<std::size_t>(cut.shared_buffer + thread_count() * cut.own_buffer +
                                  cut.sums_buffer) *
         sizeof(Unit);
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
