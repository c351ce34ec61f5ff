// Rotary embedding in place, vectorised over half a head at a time.

#include "belay/base/parallel.h"
#include "belay/device/cpu/attention/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "belay/device/cpu/attention/rotary.cc"
#include "belay/device/cpu/attention/targets.h"

#include <hwy/foreach_target.h>

#include "belay/device/cpu/attention/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace belay::attention::HWY_NAMESPACE {

template <class T>
HWY_INLINE void rotate_row(const RotaryArgs& args, std::int64_t row) {
  const FloatTag tag;
  const std::int64_t half = args.head_dim / 2;
  const float* cosines =
      args.table.as<float>() + args.positions.as<std::int32_t>()[row] * args.head_dim;
  const float* sines = cosines + half;
  const float sign = args.backward ? -1.0F : 1.0F;
  const Floats signs = hn::Set(tag, sign);
  T* end = args.rows.row<T>(row) + args.rows.width;
  for (T* first = args.rows.row<T>(row); first < end; first += args.head_dim) {
    T* second = first + half;
    std::int64_t d = 0;
    for (; d + kLanes <= half; d += kLanes) {
      const Floats cosine = hn::LoadU(tag, cosines + d);
      const Floats sine = hn::Mul(hn::LoadU(tag, sines + d), signs);
      const Floats x1 = load_row(first + d);
      const Floats x2 = load_row(second + d);
      store_row(first + d, hn::MulSub(x1, cosine, hn::Mul(x2, sine)));
      store_row(second + d, hn::MulAdd(x2, cosine, hn::Mul(x1, sine)));
    }
    for (; d < half; ++d) {
      const float sine = sines[d] * sign;
      const float x1 = load_one(first + d);
      const float x2 = load_one(second + d);
      store_one(first + d, x1 * cosines[d] - x2 * sine);
      store_one(second + d, x2 * cosines[d] + x1 * sine);
    }
  }
}

HWY_NOINLINE void rotate_rows(const RotaryArgs& args, std::int64_t begin, std::int64_t end) {
  for (std::int64_t row = begin; row < end; ++row) {
    switch (args.rows.dtype) {
      case DType::f32:
        rotate_row<float>(args, row);
        break;
      case DType::bf16:
        rotate_row<Bf16>(args, row);
        break;
      default:
        rotate_row<F16>(args, row);
    }
  }
}

}  // namespace belay::attention::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace belay::attention {

HWY_EXPORT(rotate_rows);

void run_rotary(const RotaryArgs& args, KernelContext&) {
  constexpr std::int64_t kRowsPerPiece = 32;
  const auto rotate = HWY_DYNAMIC_DISPATCH(rotate_rows);
  parallel_for(pieces_of(args.rows.rows, kRowsPerPiece), [&](std::int64_t piece) {
    const std::int64_t begin = piece * kRowsPerPiece;
    rotate(args, begin, std::min(begin + kRowsPerPiece, args.rows.rows));
  });
}

}  // namespace belay::attention
#endif
