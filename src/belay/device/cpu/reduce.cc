// Sums over rows and over whole vectors.

#include "belay/device/cpu/kernels.h"
#include "belay/device/cpu/pieces.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "belay/device/cpu/reduce.cc"
// foreach_target.h compiles this file again per instruction set, so the order matters.
// clang-format off
#include "belay/base/simd_targets.h"
#include "hwy/foreach_target.h"
#include "belay/device/cpu/simd.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace belay::HWY_NAMESPACE {

// sums[c] = sum of rows `rows` of column c. Four rows at a time: the running sums then cost a
// quarter of the traffic of the rows.
template <class T>
void sum_rows(const Tensor& src, Range rows, float* sums) {
  const std::int64_t width = src.dim(1);
  std::fill_n(sums, width, 0.0F);
  const T* base = src.as<T>();
  std::int64_t r = rows.begin;
  for (; r + 4 <= rows.end; r += 4) {
    const T* row0 = base + r * width;
    const T* row1 = row0 + width;
    const T* row2 = row1 + width;
    const T* row3 = row2 + width;
    for_vectors(width, [&](auto access, std::int64_t i) HWY_ATTR {
      const Vec pair0 = hn::Add(access.load(row0 + i), access.load(row1 + i));
      const Vec pair1 = hn::Add(access.load(row2 + i), access.load(row3 + i));
      access.store(hn::Add(access.load(sums + i), hn::Add(pair0, pair1)), sums + i);
    });
  }
  for (; r < rows.end; ++r) {
    const T* row = base + r * width;
    for_vectors(width, [&](auto access, std::int64_t i) HWY_ATTR {
      access.store(hn::Add(access.load(sums + i), access.load(row + i)), sums + i);
    });
  }
}

// As add_chunks(), but each total passes through the storage type.
void add_kept_sums(const ColumnSumArgs& args, const float* partials, std::int64_t chunks) {
  const std::int64_t width = args.src.dim(1);
  float* dst = args.dst.as<float>();
  for (std::int64_t c = 0; c < width; ++c) {
    float sum = partials[c];
    for (std::int64_t chunk = 1; chunk < chunks; ++chunk) sum += partials[chunk * width + c];
    dst[c] += kept_inside(sum, args.src.dtype, args.inside);
  }
}

void column_sum(const ColumnSumArgs& args, float* partials) {
  const std::int64_t rows = args.src.dim(0);
  const std::int64_t width = args.src.dim(1);
  const std::int64_t grain = rows_per_chunk(rows);
  const std::int64_t chunks = pieces_of(rows, grain);
  parallel_for(chunks, [&](std::int64_t chunk) HWY_ATTR {
    const Range range{chunk * grain, std::min(rows, (chunk + 1) * grain)};
    float* sums = partials + chunk * width;
    with_storage(args.src.dtype,
                 [&](auto as) HWY_ATTR { sum_rows<decltype(as)>(args.src, range, sums); });
  });
  if (chunks == 0) return;
  if (args.inside != Inside::full) return add_kept_sums(args, partials, chunks);
  parallel_ranges(width, 1024, [&](Range columns) HWY_ATTR {
    add_chunks(partials, chunks, width, columns.begin, columns.end, args.dst.as<float>());
  });
}

}  // namespace belay::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace belay {
namespace {

HWY_EXPORT(column_sum);

constexpr Candidate<ColumnSumArgs> kColumnSum[] = {
    {"simd", [](const ColumnSumArgs& args) { return unless_storable(args.src); },
     [](const ColumnSumArgs& args) {
       const std::int64_t rows = args.src.dim(0);
       return static_cast<std::size_t>(pieces_of(rows, rows_per_chunk(rows)) * args.src.dim(1)) *
              sizeof(float);
     },
     [](const ColumnSumArgs& args, KernelContext& context) {
       HWY_DYNAMIC_DISPATCH(column_sum)(args, reinterpret_cast<float*>(context.workspace));
     }},
    kReferenceKernel<ColumnSumArgs>};

// The order is part of the definition, and the sums taken are of one value per token: one chain of
// additions in double.
constexpr Candidate<SumArgs> kSum[] = {
    {"serial", [](const SumArgs& args) { return unless_f32(args.src); }, nullptr,
     [](const SumArgs& args, KernelContext&) {
       double sum = args.dst.as<double>()[0];
       const float* src = args.src.as<float>();
       const std::int64_t count = args.src.elements();
       for (std::int64_t i = 0; i < count; ++i) sum += static_cast<double>(src[i]);
       args.dst.as<double>()[0] = sum;
     }},
    kReferenceKernel<SumArgs>};

}  // namespace

Candidates<ColumnSumArgs> cpu_candidates(OpTag<ColumnSumArgs>) {
  return kColumnSum;
}
Candidates<SumArgs> cpu_candidates(OpTag<SumArgs>) {
  return kSum;
}

}  // namespace belay
#endif  // HWY_ONCE
