// Per-target building blocks of attention: exp2, loads and stores of rows of any storage type,
// transposes.
// Included once per instruction set (Highway's foreach_target).

#if defined(BELAY_ATTENTION_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef BELAY_ATTENTION_SIMD_INL_H_
#undef BELAY_ATTENTION_SIMD_INL_H_
#else
#define BELAY_ATTENTION_SIMD_INL_H_
#endif

#include <hwy/highway.h>

#include "belay/base/check.h"
#include "belay/base/dtype.h"
#include "belay/base/tensor.h"
#include "belay/device/cpu/half-inl.h"

HWY_BEFORE_NAMESPACE();
namespace belay::attention::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using Floats = hn::Vec<FloatTag>;
inline constexpr std::int64_t kLanes = hn::MaxLanes(FloatTag());

// 2^x for x <= 2^20; 0 below -125 and for -infinity, NaN for NaN, exactly 1 for 0. Relative error
// below 1.7e-7: x is split into an integer, added to the exponent, and a rest in [-1/2, 1/2] for a
// polynomial of degree 5, minimax under the constraint that it is 1 at 0.
HWY_INLINE Floats exp2(Floats x) {
  const FloatTag tag;
  const hn::RebindToSigned<FloatTag> bits;
  const Floats magic = hn::Set(tag, 0x1.8p23F);  // adding it rounds to an integer
  const Floats shifted = hn::Add(x, magic);
  const Floats rest = hn::Sub(x, hn::Sub(shifted, magic));
  Floats sum = hn::Set(tag, 0.001326472731307149F);
  sum = hn::MulAdd(sum, rest, hn::Set(tag, 0.009671512991189957F));
  sum = hn::MulAdd(sum, rest, hn::Set(tag, 0.05550733581185341F));
  sum = hn::MulAdd(sum, rest, hn::Set(tag, 0.24022242426872253F));
  sum = hn::MulAdd(sum, rest, hn::Set(tag, 0.6931470036506653F));
  sum = hn::MulAdd(sum, rest, hn::Set(tag, 1.0F));
  const auto exponent = hn::ShiftLeft<23>(hn::BitCast(bits, shifted));
  const Floats power = hn::BitCast(tag, hn::Add(hn::BitCast(bits, sum), exponent));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(tag, -125.0F)), power);
}

HWY_INLINE Floats load_row(const float* src) {
  return hn::LoadU(FloatTag(), src);
}
HWY_INLINE Floats load_row(const Bf16* src) {
  const FloatTag tag;
  const hn::RebindToUnsigned<FloatTag> wide;
  const hn::Rebind<std::uint16_t, FloatTag> narrow;
  const auto half = hn::LoadU(narrow, reinterpret_cast<const std::uint16_t*>(src));
  return hn::BitCast(tag, hn::ShiftLeft<16>(hn::PromoteTo(wide, half)));
}
HWY_INLINE Floats load_row(const F16* src) {
  const FloatTag tag;
  const hn::Rebind<std::uint16_t, FloatTag> narrow;
  return half::HWY_NAMESPACE::widen(tag,
                                    hn::LoadU(narrow, reinterpret_cast<const std::uint16_t*>(src)));
}
HWY_INLINE void store_row(F16* dst, Floats value) {
  const FloatTag tag;
  const hn::Rebind<std::uint16_t, FloatTag> narrow;
  hn::StoreU(half::HWY_NAMESPACE::narrow(tag, value), narrow,
             reinterpret_cast<std::uint16_t*>(dst));
}
HWY_INLINE void store_row(float* dst, Floats value) {
  hn::StoreU(value, FloatTag(), dst);
}
HWY_INLINE void store_row(Bf16* dst, Floats value) {
  const hn::RebindToUnsigned<FloatTag> wide;
  const hn::Rebind<std::uint16_t, FloatTag> narrow;
  const auto word = hn::BitCast(wide, value);
  const auto odd = hn::And(hn::ShiftRight<16>(word), hn::Set(wide, 1U));
  const auto rounded = hn::Add(word, hn::Add(odd, hn::Set(wide, 0x7fffU)));
  const auto quiet = hn::Or(word, hn::Set(wide, 0x400000U));
  const auto nan = hn::RebindMask(wide, hn::IsNaN(value));
  const auto result = hn::ShiftRight<16>(hn::IfThenElse(nan, quiet, rounded));
  hn::StoreU(hn::TruncateTo(narrow, result), narrow, reinterpret_cast<std::uint16_t*>(dst));
}

HWY_INLINE float load_one(const float* src) {
  return *src;
}
HWY_INLINE float load_one(const Bf16* src) {
  return to_float(*src);
}
HWY_INLINE void store_one(float* dst, float value) {
  *dst = value;
}
HWY_INLINE void store_one(Bf16* dst, float value) {
  *dst = to_bf16(value);
}
HWY_INLINE float load_one(const F16* src) {
  return to_float(*src);
}
HWY_INLINE void store_one(F16* dst, float value) {
  *dst = to_f16(value);
}

// dst[row][0, dim) = src[row][0, dim) for `count` of `rows` rows; the rest of dst, up to `stride`
// columns, becomes 0.
template <class T>
HWY_INLINE void pack_rows(const T* src, std::int64_t src_stride, std::int64_t count,
                          std::int64_t rows, std::int64_t dim, float* dst, std::int64_t stride) {
  const FloatTag tag;
  for (std::int64_t row = 0; row < count; ++row) {
    const T* from = src + row * src_stride;
    float* to = dst + row * stride;
    std::int64_t d = 0;
    for (; d + kLanes <= dim; d += kLanes) hn::Store(load_row(from + d), tag, to + d);
    for (; d < dim; ++d) to[d] = load_one(from + d);
    for (; d < stride; ++d) to[d] = 0.0F;
  }
  for (std::int64_t at = count * stride; at < rows * stride; at += kLanes) {
    hn::Store(hn::Zero(tag), tag, dst + at);
  }
}

// dst[row][0, dim) = src[row][0, dim) * scale for `count` rows of scratch.
template <class T>
HWY_INLINE void unpack_rows(const float* src, std::int64_t stride, std::int64_t count,
                            std::int64_t dim, float scale, T* dst, std::int64_t dst_stride) {
  const FloatTag tag;
  const Floats factor = hn::Set(tag, scale);
  for (std::int64_t row = 0; row < count; ++row) {
    const float* from = src + row * stride;
    T* to = dst + row * dst_stride;
    std::int64_t d = 0;
    for (; d + kLanes <= dim; d += kLanes) {
      store_row(to + d, hn::Mul(hn::Load(tag, from + d), factor));
    }
    for (; d < dim; ++d) store_one(to + d, from[d] * scale);
  }
}

// The same from and to `column` of rows [first, first + count) of any storage type. The products
// in between know f32 only, so that they are compiled once.
inline HWY_NOINLINE void pack_rows(const Rows& src, std::int64_t first, std::int64_t column,
                                   std::int64_t count, std::int64_t rows, std::int64_t dim,
                                   float* dst, std::int64_t stride) {
  switch (src.dtype) {
    case DType::f32:
      return pack_rows(src.row<float>(first) + column, src.stride, count, rows, dim, dst, stride);
    case DType::bf16:
      return pack_rows(src.row<Bf16>(first) + column, src.stride, count, rows, dim, dst, stride);
    case DType::f16:
      return pack_rows(src.row<F16>(first) + column, src.stride, count, rows, dim, dst, stride);
    default:
      BELAY_CHECK(false);
  }
}
inline HWY_NOINLINE void unpack_rows(const float* src, std::int64_t stride, std::int64_t count,
                                     std::int64_t dim, float scale, const Rows& dst,
                                     std::int64_t first, std::int64_t column) {
  switch (dst.dtype) {
    case DType::f32:
      return unpack_rows(src, stride, count, dim, scale, dst.row<float>(first) + column,
                         dst.stride);
    case DType::bf16:
      return unpack_rows(src, stride, count, dim, scale, dst.row<Bf16>(first) + column, dst.stride);
    case DType::f16:
      return unpack_rows(src, stride, count, dim, scale, dst.row<F16>(first) + column, dst.stride);
    default:
      BELAY_CHECK(false);
  }
}

// dst[column][row] = src[row][column]; rows and columns are multiples of 4.
#if HWY_TARGET == HWY_SCALAR
template <class T>
HWY_INLINE void transpose(const T* src, std::int64_t src_stride, std::int64_t rows,
                          std::int64_t columns, T* dst, std::int64_t dst_stride) {
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t column = 0; column < columns; ++column) {
      dst[column * dst_stride + row] = src[row * src_stride + column];
    }
  }
}
#else
template <class T>
HWY_INLINE void transpose(const T* src, std::int64_t src_stride, std::int64_t rows,
                          std::int64_t columns, T* dst, std::int64_t dst_stride) {
  const hn::FixedTag<T, 4> four;
  for (std::int64_t row = 0; row < rows; row += 4) {
    for (std::int64_t column = 0; column < columns; column += 4) {
      const T* from = src + row * src_stride + column;
      const auto r0 = hn::Load(four, from);
      const auto r1 = hn::Load(four, from + src_stride);
      const auto r2 = hn::Load(four, from + 2 * src_stride);
      const auto r3 = hn::Load(four, from + 3 * src_stride);
      const auto low02 = hn::InterleaveLower(four, r0, r2);
      const auto low13 = hn::InterleaveLower(four, r1, r3);
      const auto high02 = hn::InterleaveUpper(four, r0, r2);
      const auto high13 = hn::InterleaveUpper(four, r1, r3);
      T* to = dst + column * dst_stride + row;
      hn::Store(hn::InterleaveLower(four, low02, low13), four, to);
      hn::Store(hn::InterleaveUpper(four, low02, low13), four, to + dst_stride);
      hn::Store(hn::InterleaveLower(four, high02, high13), four, to + 2 * dst_stride);
      hn::Store(hn::InterleaveUpper(four, high02, high13), four, to + 3 * dst_stride);
    }
  }
}
#endif

}  // namespace belay::attention::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
