// How plain passes walk over their operands. Compiled once per instruction set, like simd.h.

#if defined(BELAY_DEVICE_PLAIN_RUNS_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef BELAY_DEVICE_PLAIN_RUNS_H_
#undef BELAY_DEVICE_PLAIN_RUNS_H_
#else
#define BELAY_DEVICE_PLAIN_RUNS_H_
#endif

#include "belay/device/cpu/pieces.h"
#include "belay/device/cpu/simd_math.h"

HWY_BEFORE_NAMESPACE();
namespace belay::plain::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using namespace belay::HWY_NAMESPACE;  // NOLINT: the vectors of this instruction set

HWY_INLINE bool contiguous(const Rows& rows) {
  return rows.stride == rows.width || rows.rows == 1;
}

// body(row, begin, count) over all elements: pieces of one long row where `flat`, else whole rows.
template <class Body>
HWY_INLINE void over_runs(const Rows& shape, bool flat, const Body& body) {
  if (flat) {
    parallel_ranges(shape.rows * shape.width, kPieceElements,
                    [&](Range run) HWY_ATTR { body(0, run.begin, run.size()); });
    return;
  }
  parallel_ranges(shape.rows, rows_per_piece(shape.width), [&](Range rows) HWY_ATTR {
    for (std::int64_t row = rows.begin; row < rows.end; ++row) body(row, 0, shape.width);
  });
}

// body(row) for every row, in parallel.
template <class Body>
HWY_INLINE void over_rows(const Rows& shape, const Body& body) {
  parallel_ranges(shape.rows, rows_per_piece(shape.width), [&](Range rows) HWY_ATTR {
    for (std::int64_t row = rows.begin; row < rows.end; ++row) body(row);
  });
}

// dst = f(x)
template <class From, class To, class F>
HWY_INLINE void map(const Rows& x, const Rows& dst, const F& f) {
  over_runs(dst, contiguous(x) && contiguous(dst),
            [&](std::int64_t row, std::int64_t begin, std::int64_t count) HWY_ATTR {
              const From* from = x.row<From>(row) + begin;
              To* to = dst.row<To>(row) + begin;
              for_vectors(count, [&](auto access, std::int64_t i)
                                     HWY_ATTR { access.store(f(access.load(from + i)), to + i); });
            });
}

// dst = f(a, b)
template <class T, class F>
HWY_INLINE void map(const Rows& a, const Rows& b, const Rows& dst, const F& f) {
  over_runs(dst, contiguous(a) && contiguous(b) && contiguous(dst),
            [&](std::int64_t row, std::int64_t begin, std::int64_t count) HWY_ATTR {
              const T* left = a.row<T>(row) + begin;
              const T* right = b.row<T>(row) + begin;
              T* to = dst.row<T>(row) + begin;
              for_vectors(count, [&](auto access, std::int64_t i) HWY_ATTR {
                access.store(f(access.load(left + i), access.load(right + i)), to + i);
              });
            });
}

// The largest of [0, count), at least the lowest finite value.
template <class T>
HWY_INLINE float max_over(const T* x, std::int64_t count) {
  const Vec lowest = splat(hwy::LowestValue<float>());
  Vec largest = lowest;
  for_vectors(count, [&](auto access, std::int64_t i) HWY_ATTR {
    Vec value = access.load(x + i);
    if constexpr (std::is_same_v<decltype(access), Part>) {
      value = hn::IfThenElse(hn::FirstN(kF32, access.count), value, lowest);
    }
    largest = hn::Max(value, largest);
  });
  return hn::GetLane(hn::MaxOfLanes(kF32, largest));
}

}  // namespace belay::plain::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
