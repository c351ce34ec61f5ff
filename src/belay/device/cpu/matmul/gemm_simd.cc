// Register tiles for any instruction set through Highway, and packing in plain code.

#include "belay/device/cpu/matmul/gemm_simd.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "belay/base/parallel.h"
#include "belay/base/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "belay/device/cpu/matmul/gemm_simd.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
//
#include "belay/device/cpu/half-inl.h"

HWY_BEFORE_NAMESPACE();
namespace belay {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// As many sums as the registers hold beside two vectors of b and one of a.
#if HWY_TARGET == HWY_AVX3
constexpr std::int64_t kRows = 14;
#elif HWY_ARCH_ARM_A64
constexpr std::int64_t kRows = 12;
#else
constexpr std::int64_t kRows = 6;
#endif

using D = hn::CappedTag<float, 16>;
using V = hn::Vec<D>;
constexpr std::int64_t kLanes = static_cast<std::int64_t>(hn::MaxLanes(D()));
constexpr std::int64_t kCols = 2 * kLanes;

inline float element(DType dtype, const void* data, std::int64_t at) {
  if (dtype == DType::f32) return static_cast<const float*>(data)[at];
  if (dtype == DType::f16) return to_float(static_cast<const F16*>(data)[at]);
  return to_float(static_cast<const Bf16*>(data)[at]);
}

inline void finish_one(const GemmTile& tile, std::int64_t row, std::int64_t col, float value) {
  if (tile.in != nullptr) value += element(tile.in_type, tile.in, row * tile.in_stride + col);
  if (tile.bias != nullptr) value += element(tile.bias_type, tile.bias, col);
  const std::int64_t at = row * tile.out_stride + col;
  if (tile.out_type == DType::f32) {
    static_cast<float*>(tile.out)[at] = value;
  } else if (tile.out_type == DType::f16) {
    static_cast<F16*>(tile.out)[at] = to_f16(value);
  } else {
    static_cast<Bf16*>(tile.out)[at] = to_bf16(value);
  }
}

HWY_ATTR inline void finish(const GemmTile& tile, std::int64_t row, std::int64_t col, V value) {
  const D d;
  const bool plain = tile.cols - col >= kLanes && tile.bias == nullptr &&
                     tile.out_type == DType::f32 &&
                     (tile.in == nullptr || tile.in_type == DType::f32);
  if (plain) {
    if (tile.in != nullptr) {
      const float* in = static_cast<const float*>(tile.in) + row * tile.in_stride + col;
      value = hn::Add(value, hn::LoadU(d, in));
    }
    hn::StoreU(value, d, static_cast<float*>(tile.out) + row * tile.out_stride + col);
    return;
  }
  if (tile.cols - col >= kLanes && tile.in == nullptr && tile.bias == nullptr &&
      tile.out_type == DType::f16) {
    hn::StoreU(half::HWY_NAMESPACE::narrow(d, value), half::HWY_NAMESPACE::Bits<D>(),
               static_cast<std::uint16_t*>(tile.out) + row * tile.out_stride + col);
    return;
  }
  HWY_ALIGN std::array<float, kLanes> values;
  hn::Store(value, d, values.data());
  const std::int64_t count = std::min(kLanes, tile.cols - col);
  for (std::int64_t i = 0; i < count; ++i) {
    finish_one(tile, row, col + i, values[static_cast<std::size_t>(i)]);
  }
}

template <int rows>
HWY_ATTR void multiply_rows(const std::uint32_t* a, const std::uint32_t* b, std::int64_t units,
                            const GemmTile& tile) {
  const D d;
  const auto* left = reinterpret_cast<const float*>(a);
  const auto* right = reinterpret_cast<const float*>(b);
  V sums[rows][2];
#pragma GCC unroll 14
  for (int row = 0; row < rows; ++row) sums[row][0] = sums[row][1] = hn::Zero(d);
  for (std::int64_t unit = 0; unit < units; ++unit) {
    const V b0 = hn::LoadU(d, right);
    const V b1 = hn::LoadU(d, right + kLanes);
#pragma GCC unroll 14
    for (int row = 0; row < rows; ++row) {
      const V scalar = hn::Set(d, left[row]);
      sums[row][0] = hn::MulAdd(scalar, b0, sums[row][0]);
      sums[row][1] = hn::MulAdd(scalar, b1, sums[row][1]);
    }
    left += rows;
    right += kCols;
  }
#pragma GCC unroll 14
  for (int row = 0; row < rows; ++row) {
    finish(tile, row, 0, sums[row][0]);
    finish(tile, row, kLanes, sums[row][1]);
  }
}

// f16 lines become f32 units.
HWY_ATTR void widen_run(const std::uint16_t* src, float* dst, std::int64_t count) {
  const D d;
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    hn::StoreU(half::HWY_NAMESPACE::widen(d, hn::LoadU(half::HWY_NAMESPACE::Bits<D>(), src + i)), d,
               dst + i);
  }
  for (; i < count; ++i) dst[i] = to_float(F16{src[i]});
}

void pack_half(const GemmSource& source, std::int64_t width, std::int64_t panel_stride, bool pad,
               std::uint32_t* dst) {
  const auto* data = static_cast<const std::uint16_t*>(source.data);
  for (std::int64_t first = 0; first < source.lines; first += width, dst += panel_stride) {
    const std::int64_t lines = std::min(width, source.lines - first);
    const std::int64_t out_lines = pad ? width : lines;
    auto* panel = reinterpret_cast<float*>(dst);
    if (source.k_contiguous) {
      constexpr std::int64_t kPart = 256;
      std::array<float, kPart> part;
      for (std::int64_t line = 0; line < lines; ++line) {
        for (std::int64_t k = 0; k < source.k; k += kPart) {
          const std::int64_t count = std::min(kPart, source.k - k);
          widen_run(data + (first + line) * source.stride + k, part.data(), count);
          for (std::int64_t i = 0; i < count; ++i) {
            panel[(k + i) * out_lines + line] = part[static_cast<std::size_t>(i)];
          }
        }
      }
    }
    for (std::int64_t k = 0; k < source.k; ++k) {
      float* to = panel + k * out_lines;
      if (!source.k_contiguous) widen_run(data + k * source.stride + first, to, lines);
      std::fill(to + lines, to + out_lines, 0.0F);
    }
  }
}

using TileFunction = void (*)(const std::uint32_t*, const std::uint32_t*, std::int64_t,
                              const GemmTile&);

template <std::size_t... index>
constexpr std::array<TileFunction, kRows> tiles(std::index_sequence<index...>) {
  return {multiply_rows<static_cast<int>(index) + 1>...};
}

void run_tile(std::int64_t rows, const std::uint32_t* a, const std::uint32_t* b, std::int64_t units,
              const GemmTile& tile) {
  static constexpr auto kTiles = tiles(std::make_index_sequence<kRows>());
  kTiles[static_cast<std::size_t>(rows - 1)](a, b, units, tile);
}

// The packing that it comes with is that of f16.
GemmKernel simd_kernel() {
  GemmKernel kernel;
  kernel.src = DType::f16;
  kernel.pack = pack_half;
  kernel.name = hwy::TargetName(HWY_TARGET);
  kernel.tile_rows = kRows;
  kernel.tile_cols = kCols;
  kernel.tile = run_tile;
  return kernel;
}

}  // namespace HWY_NAMESPACE
}  // namespace belay
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace belay {
namespace {

template <class Element>
void pack(const GemmSource& source, std::int64_t width, std::int64_t panel_stride, bool pad,
          std::uint32_t* dst) {
  const auto* data = static_cast<const Element*>(source.data);
  const std::int64_t line_step = source.k_contiguous ? source.stride : 1;
  const std::int64_t k_step = source.k_contiguous ? 1 : source.stride;
  for (std::int64_t first = 0; first < source.lines; first += width, dst += panel_stride) {
    const std::int64_t lines = std::min(width, source.lines - first);
    const std::int64_t out_lines = pad ? width : lines;
    for (std::int64_t k = 0; k < source.k; ++k) {
      const Element* from = data + first * line_step + k * k_step;
      std::uint32_t* to = dst + k * out_lines;
      for (std::int64_t line = 0; line < lines; ++line) {
        if constexpr (std::is_same_v<Element, float>) {
          to[line] = std::bit_cast<std::uint32_t>(from[line * line_step]);
        } else {
          to[line] = static_cast<std::uint32_t>(from[line * line_step].bits) << 16;
        }
      }
      std::fill(to + lines, to + out_lines, 0U);
    }
  }
}

HWY_EXPORT(simd_kernel);

}  // namespace

void add_simd_kernels(std::vector<GemmKernel>& kernels) {
  GemmKernel kernel = HWY_DYNAMIC_DISPATCH(simd_kernel)();
  kernels.push_back(kernel);
  kernel.src = DType::f32;
  kernel.pack = pack<float>;
  kernels.push_back(kernel);
  kernel.src = DType::bf16;
  kernel.pack = pack<Bf16>;
  kernels.push_back(kernel);
}

}  // namespace belay
#endif
