// AVX-512 panels and register tiles of 14 x 32 f32 sums: 28 accumulators, 2 vectors of b, 1
// broadcast of a. With AVX512_BF16 one instruction adds two products of bf16 pairs, so the tile
// loop is the same with a unit twice as deep.

#include "belay/device/cpu/matmul/gemm_avx512.h"

#if defined(__x86_64__)

#if !defined(__clang__)
// GCC's own intrinsics pass a deliberately undefined register (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

#include <immintrin.h>

#include <algorithm>
#include <array>
#include <utility>

#include "belay/base/parallel.h"

namespace belay {
namespace {

constexpr std::int64_t kRows = 14;
constexpr std::int64_t kCols = 32;
constexpr std::int64_t kLanes = 16;
constexpr std::int64_t kAhead = 8;  // units that packing across k runs ahead with its prefetches

using Unit = std::uint32_t;

// ---- packing -----------------------------------------------------------------------------------

[[gnu::target("avx512f"), gnu::always_inline]] inline __mmask16 first_lanes(std::int64_t count) {
  return static_cast<__mmask16>((1U << std::clamp<std::int64_t>(count, 0, kLanes)) - 1U);
}

// rows[i] lane j  ->  rows[j] lane i
[[gnu::target("avx512f"), gnu::always_inline]] inline void transpose16(__m512i (&rows)[kLanes]) {
  __m512i half[kLanes];
#pragma GCC unroll 8
  for (int i = 0; i < kLanes; i += 2) {
    half[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
    half[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < kLanes; i += 4) {
    rows[i] = _mm512_unpacklo_epi64(half[i], half[i + 2]);
    rows[i + 1] = _mm512_unpackhi_epi64(half[i], half[i + 2]);
    rows[i + 2] = _mm512_unpacklo_epi64(half[i + 1], half[i + 3]);
    rows[i + 3] = _mm512_unpackhi_epi64(half[i + 1], half[i + 3]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    half[i] = _mm512_shuffle_i32x4(rows[i], rows[i + 4], 0x88);
    half[i + 4] = _mm512_shuffle_i32x4(rows[i], rows[i + 4], 0xdd);
    half[i + 8] = _mm512_shuffle_i32x4(rows[i + 8], rows[i + 12], 0x88);
    half[i + 12] = _mm512_shuffle_i32x4(rows[i + 8], rows[i + 12], 0xdd);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    rows[i] = _mm512_shuffle_i32x4(half[i], half[i + 8], 0x88);
    rows[i + 8] = _mm512_shuffle_i32x4(half[i], half[i + 8], 0xdd);
    rows[i + 4] = _mm512_shuffle_i32x4(half[i + 4], half[i + 12], 0x88);
    rows[i + 12] = _mm512_shuffle_i32x4(half[i + 4], half[i + 12], 0xdd);
  }
}

// Elements of k in a unit.
constexpr std::int64_t per_unit(DType dtype) {
  return dtype == DType::bf16 ? 2 : 1;
}

// Sixteen f16 as f32, or as many as the mask has.
[[gnu::target("avx512f,avx512bw,avx512vl"), gnu::always_inline]] inline __m512 load_halves(
    const std::uint16_t* from, __mmask16 mask) {
  return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, from));
}

// Sixteen units of one line, from element `at` on, where `left` elements remain.
template <DType dtype>
[[gnu::target("avx512f,avx512bw,avx512vl"), gnu::always_inline]] inline __m512i load_line(
    const void* data, std::int64_t at, std::int64_t left) {
  if constexpr (dtype == DType::f32) {
    const auto* from = static_cast<const float*>(data) + at;
    return left >= kLanes ? _mm512_loadu_si512(from)
                          : _mm512_maskz_loadu_epi32(first_lanes(left), from);
  } else if constexpr (dtype == DType::f16) {
    return _mm512_castps_si512(
        load_halves(static_cast<const std::uint16_t*>(data) + at, first_lanes(left)));
  } else {
    const auto* from = static_cast<const std::uint16_t*>(data) + at;
    if (left >= 2 * kLanes) return _mm512_loadu_si512(from);
    return _mm512_maskz_loadu_epi16((__mmask32{1} << left) - 1U, from);
  }
}

// Lines lie along k: sixteen lines by sixteen units are turned at a time.
template <DType dtype>
[[gnu::target("avx512f,avx512bw,avx512vl")]] void pack_along_k(const GemmSource& source,
                                                               std::int64_t first_line,
                                                               std::int64_t lines,
                                                               std::int64_t out_stride, Unit* dst) {
  constexpr std::int64_t kPerUnit = per_unit(dtype);
  const std::int64_t units = pieces_of(source.k, kPerUnit);
  for (std::int64_t unit = 0; unit < units; unit += kLanes) {
    const std::int64_t at = unit * kPerUnit;
    const std::int64_t count = std::min(kLanes, units - unit);
    for (std::int64_t line = 0; line < out_stride; line += kLanes) {
      __m512i block[kLanes];
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) {
        block[i] = line + i < lines
                       ? load_line<dtype>(source.data, (first_line + line + i) * source.stride + at,
                                          source.k - at)
                       : _mm512_setzero_si512();
      }
      transpose16(block);
      const __mmask16 mask = first_lanes(out_stride - line);
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) {
        if (i < count)
          _mm512_mask_storeu_epi32(dst + (unit + i) * out_stride + line, mask, block[i]);
      }
    }
  }
}

// Lines lie side by side: rows of k are copied, f16 widened, bf16 rows woven in pairs.
template <DType dtype>
[[gnu::target("avx512f,avx512bw,avx512vl")]] void pack_across_k(
    const GemmSource& source, std::int64_t unit, std::int64_t first_line, std::int64_t lines,
    std::int64_t out_stride, Unit* dst) {
  for (std::int64_t line = 0; line < out_stride; line += kLanes) {
    const __mmask16 in = first_lanes(lines - line);
    const __mmask16 out = first_lanes(out_stride - line);
    __m512i units;
    if constexpr (dtype == DType::f32) {
      const auto* from =
          static_cast<const float*>(source.data) + unit * source.stride + first_line + line;
      __builtin_prefetch(from + kAhead * source.stride);
      units = _mm512_maskz_loadu_epi32(in, from);
    } else if constexpr (dtype == DType::f16) {
      const auto* from =
          static_cast<const std::uint16_t*>(source.data) + unit * source.stride + first_line + line;
      __builtin_prefetch(from + kAhead * source.stride);
      units = _mm512_castps_si512(load_halves(from, in));
    } else {
      const auto* even = static_cast<const std::uint16_t*>(source.data) + 2 * unit * source.stride +
                         first_line + line;
      __builtin_prefetch(even + 2 * kAhead * source.stride);
      __builtin_prefetch(even + (2 * kAhead + 1) * source.stride);
      units = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(in, even));
      if (2 * unit + 1 < source.k) {
        const __m256i odd = _mm256_maskz_loadu_epi16(in, even + source.stride);
        units = _mm512_or_si512(units, _mm512_slli_epi32(_mm512_cvtepu16_epi32(odd), 16));
      }
    }
    _mm512_mask_storeu_epi32(dst + line, out, units);
  }
}

template <DType dtype>
[[gnu::target("avx512f,avx512bw,avx512vl")]] void pack(const GemmSource& source, std::int64_t width,
                                                       std::int64_t panel_stride, bool pad,
                                                       Unit* dst) {
  const std::int64_t units = pieces_of(source.k, per_unit(dtype));
  if (source.k_contiguous) {
    for (std::int64_t line = 0; line < source.lines; line += width, dst += panel_stride) {
      const std::int64_t lines = std::min(width, source.lines - line);
      pack_along_k<dtype>(source, line, lines, pad ? width : lines, dst);
    }
    return;
  }
  for (std::int64_t unit = 0; unit < units; ++unit) {
    Unit* panel = dst;
    for (std::int64_t line = 0; line < source.lines; line += width, panel += panel_stride) {
      const std::int64_t lines = std::min(width, source.lines - line);
      const std::int64_t out_stride = pad ? width : lines;
      pack_across_k<dtype>(source, unit, line, lines, out_stride, panel + unit * out_stride);
    }
  }
}

// ---- register tiles ----------------------------------------------------------------------------

[[gnu::target("avx512f,avx512bw,avx512vl"), gnu::always_inline]] inline __m512 load_elements(
    DType dtype, const void* data, std::int64_t at, __mmask16 mask) {
  if (dtype == DType::f32) {
    return _mm512_maskz_loadu_ps(mask, static_cast<const float*>(data) + at);
  }
  if (dtype == DType::f16) return load_halves(static_cast<const std::uint16_t*>(data) + at, mask);
  const __m256i bits = _mm256_maskz_loadu_epi16(mask, static_cast<const std::uint16_t*>(data) + at);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

// Rounds to nearest even like to_bf16(), NaN included.
[[gnu::target("avx512f,avx512bw,avx512vl"), gnu::always_inline]] inline __m256i round_to_bf16(
    __m512 value) {
  const __m512i bits = _mm512_castps_si512(value);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x00400000));
  const __mmask16 nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_mask_mov_epi32(rounded, nan, quiet), 16));
}

[[gnu::target("avx512f,avx512bw,avx512vl"), gnu::always_inline]] inline void finish(
    const GemmTile& tile, std::int64_t row, std::int64_t col, __m512 value) {
  const __mmask16 mask = first_lanes(tile.cols - col);
  if (tile.in != nullptr) {
    const __m512 in = load_elements(tile.in_type, tile.in, row * tile.in_stride + col, mask);
    value = _mm512_add_ps(value, in);
  }
  if (tile.bias != nullptr) {
    value = _mm512_add_ps(value, load_elements(tile.bias_type, tile.bias, col, mask));
  }
  const std::int64_t at = row * tile.out_stride + col;
  if (tile.out_type == DType::f32) {
    _mm512_mask_storeu_ps(static_cast<float*>(tile.out) + at, mask, value);
  } else {
    const __m256i rounded = tile.out_type == DType::f16
                                ? _mm512_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT)
                                : round_to_bf16(value);
    _mm256_mask_storeu_epi16(static_cast<std::uint16_t*>(tile.out) + at, mask, rounded);
  }
}

// Touches one row of the destination while the sums run, so that writing it does not wait.
[[gnu::always_inline]] inline void prefetch_row(const GemmTile& tile, std::int64_t row) {
  const char* at = static_cast<const char*>(tile.out) +
                   row * tile.out_stride * (tile.out_type == DType::f32 ? 4 : 2);
  __builtin_prefetch(at, 1);
  __builtin_prefetch(at + (tile.out_type == DType::f32 ? 127 : 63), 1);
}

template <int rows>
[[gnu::target("avx512f"), gnu::always_inline]] inline void add_f32(__m512 (&sums)[rows][2],
                                                                   const Unit* a, const Unit* b) {
  const __m512 left = _mm512_load_ps(b);
  const __m512 right = _mm512_load_ps(b + kLanes);
#pragma GCC unroll 14
  for (int row = 0; row < rows; ++row) {
    const __m512 scalar = _mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int>(a[row])));
    sums[row][0] = _mm512_fmadd_ps(scalar, left, sums[row][0]);
    sums[row][1] = _mm512_fmadd_ps(scalar, right, sums[row][1]);
  }
}

template <int rows>
[[gnu::target("avx512f,avx512bf16"), gnu::always_inline]] inline void add_bf16(
    __m512 (&sums)[rows][2], const Unit* a, const Unit* b) {
  const auto left = reinterpret_cast<__m512bh>(_mm512_load_si512(b));
  const auto right = reinterpret_cast<__m512bh>(_mm512_load_si512(b + kLanes));
#pragma GCC unroll 14
  for (int row = 0; row < rows; ++row) {
    const auto pair = reinterpret_cast<__m512bh>(_mm512_set1_epi32(static_cast<int>(a[row])));
    sums[row][0] = _mm512_dpbf16_ps(sums[row][0], pair, left);
    sums[row][1] = _mm512_dpbf16_ps(sums[row][1], pair, right);
  }
}

template <int rows>
[[gnu::target("avx512f,avx512bw,avx512vl")]] void tile_f32(const Unit* a, const Unit* b,
                                                           std::int64_t units,
                                                           const GemmTile& tile) {
  __m512 sums[rows][2];
#pragma GCC unroll 14
  for (int row = 0; row < rows; ++row) sums[row][0] = sums[row][1] = _mm512_setzero_ps();
  const std::int64_t touching = std::min<std::int64_t>(units, rows);
  std::int64_t unit = 0;
  for (; unit < touching; ++unit) {
    prefetch_row(tile, unit);
    add_f32<rows>(sums, a + unit * rows, b + unit * kCols);
  }
  for (; unit < units; ++unit) add_f32<rows>(sums, a + unit * rows, b + unit * kCols);
#pragma GCC unroll 14
  for (int row = 0; row < rows; ++row) {
    finish(tile, row, 0, sums[row][0]);
    finish(tile, row, kLanes, sums[row][1]);
  }
}

template <int rows>
[[gnu::target("avx512f,avx512bw,avx512vl,avx512bf16")]] void tile_bf16(const Unit* a, const Unit* b,
                                                                       std::int64_t units,
                                                                       const GemmTile& tile) {
  __m512 sums[rows][2];
#pragma GCC unroll 14
  for (int row = 0; row < rows; ++row) sums[row][0] = sums[row][1] = _mm512_setzero_ps();
  const std::int64_t touching = std::min<std::int64_t>(units, rows);
  std::int64_t unit = 0;
  for (; unit < touching; ++unit) {
    prefetch_row(tile, unit);
    add_bf16<rows>(sums, a + unit * rows, b + unit * kCols);
  }
  for (; unit < units; ++unit) add_bf16<rows>(sums, a + unit * rows, b + unit * kCols);
#pragma GCC unroll 14
  for (int row = 0; row < rows; ++row) {
    finish(tile, row, 0, sums[row][0]);
    finish(tile, row, kLanes, sums[row][1]);
  }
}

using TileFunction = void (*)(const Unit*, const Unit*, std::int64_t, const GemmTile&);

template <std::size_t... index>
constexpr std::array<TileFunction, kRows> f32_tiles(std::index_sequence<index...>) {
  return {tile_f32<static_cast<int>(index) + 1>...};
}
template <std::size_t... index>
constexpr std::array<TileFunction, kRows> bf16_tiles(std::index_sequence<index...>) {
  return {tile_bf16<static_cast<int>(index) + 1>...};
}

constexpr auto kF32Tiles = f32_tiles(std::make_index_sequence<kRows>());
constexpr auto kBf16Tiles = bf16_tiles(std::make_index_sequence<kRows>());

void run_f32_tile(std::int64_t rows, const Unit* a, const Unit* b, std::int64_t units,
                  const GemmTile& tile) {
  kF32Tiles[static_cast<std::size_t>(rows - 1)](a, b, units, tile);
}
void run_bf16_tile(std::int64_t rows, const Unit* a, const Unit* b, std::int64_t units,
                   const GemmTile& tile) {
  kBf16Tiles[static_cast<std::size_t>(rows - 1)](a, b, units, tile);
}

}  // namespace

void add_avx512_kernels(std::vector<GemmKernel>& kernels) {
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512vl")) {
    return;
  }
  kernels.push_back({"avx512 f32", DType::f32, kRows, kCols, 1, pack<DType::f32>, run_f32_tile});
  kernels.push_back({"avx512 f16", DType::f16, kRows, kCols, 1, pack<DType::f16>, run_f32_tile});
  if (__builtin_cpu_supports("avx512bf16")) {
    kernels.push_back(
        {"avx512 bf16", DType::bf16, kRows, kCols, 2, pack<DType::bf16>, run_bf16_tile});
  }
}

}  // namespace belay

#else

namespace belay {
void add_avx512_kernels(std::vector<GemmKernel>&) {}
}  // namespace belay

#endif
