#include "belay/comm/reduce.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "belay/base/error.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "belay/comm/reduce.cc"
// foreach_target.h compiles this file again per instruction set, so the order matters.
// clang-format off
#include "belay/base/simd_targets.h"
#include "hwy/foreach_target.h"
#include "belay/device/cpu/simd.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace belay::comm::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace simd = belay::HWY_NAMESPACE;
using simd::Vec;

template <ReduceOp op>
HWY_INLINE Vec apply(Vec first, Vec second) {
  if constexpr (op == ReduceOp::prod) return hn::Mul(first, second);
  // Instruction sets differ in what their minimum and maximum make of NaN.
  if constexpr (op == ReduceOp::min || op == ReduceOp::max) {
    const Vec value = op == ReduceOp::min ? hn::Min(first, second) : hn::Max(first, second);
    const Vec either = hn::IfThenElse(hn::IsNaN(second), second, value);
    return hn::IfThenElse(hn::IsNaN(first), first, either);
  }
  return hn::Add(first, second);
}

// With op avg the result is complete and divided.
template <ReduceOp op, class First, class Second, class Dst>
HWY_NOINLINE void pair_run(const First* first, const Second* second, Dst* dst, std::int64_t count,
                           float divisor) {
  const Vec by = simd::splat(divisor);
  simd::for_vectors(count, [&](auto access, std::int64_t i) HWY_ATTR {
    Vec value = apply<op>(access.load(first + i), access.load(second + i));
    if constexpr (op == ReduceOp::avg) value = hn::Div(value, by);
    access.store(value, dst + i);
  });
}

// The loop for the operation.
template <class First, class Second, class Dst>
void pair_op(const Arithmetic& arithmetic, const void* first, const void* second, Result dst,
             std::int64_t count) {
  const auto* a = static_cast<const First*>(first);
  const auto* b = static_cast<const Second*>(second);
  auto* c = static_cast<Dst*>(dst.data);
  const auto divisor = static_cast<float>(arithmetic.ranks);
  switch (arithmetic.op) {
    case ReduceOp::prod:
      return pair_run<ReduceOp::prod>(a, b, c, count, divisor);
    case ReduceOp::min:
      return pair_run<ReduceOp::min>(a, b, c, count, divisor);
    case ReduceOp::max:
      return pair_run<ReduceOp::max>(a, b, c, count, divisor);
    case ReduceOp::avg:
      if (dst.complete) return pair_run<ReduceOp::avg>(a, b, c, count, divisor);
      break;
    case ReduceOp::sum:
      break;
  }
  pair_run<ReduceOp::sum>(a, b, c, count, divisor);
}

template <class Storage, class First, class Second>
void pair_to(const Arithmetic& arithmetic, const void* first, const void* second, Result dst,
             std::int64_t count) {
  if (dst.complete) {
    pair_op<First, Second, Storage>(arithmetic, first, second, dst, count);
  } else {
    pair_op<First, Second, float>(arithmetic, first, second, dst, count);
  }
}

template <class Storage>
void pair_of(const Arithmetic& arithmetic, Values first, Values second, Result dst,
             std::int64_t count) {
  const void* a = first.data;
  const void* b = second.data;
  if (first.wide && second.wide) {
    pair_to<Storage, float, float>(arithmetic, a, b, dst, count);
  } else if (first.wide) {
    pair_to<Storage, float, Storage>(arithmetic, a, b, dst, count);
  } else if (second.wide) {
    pair_to<Storage, Storage, float>(arithmetic, a, b, dst, count);
  } else {
    pair_to<Storage, Storage, Storage>(arithmetic, a, b, dst, count);
  }
}

void float_pair(const Arithmetic& arithmetic, Values first, Values second, Result dst,
                std::int64_t count) {
  if (arithmetic.storage == DType::bf16) {
    pair_of<Bf16>(arithmetic, first, second, dst, count);
  } else if (arithmetic.storage == DType::f16) {
    pair_of<F16>(arithmetic, first, second, dst, count);
  } else {
    pair_to<float, float, float>(arithmetic, first.data, second.data, dst, count);
  }
}

void float_widen(const Arithmetic& arithmetic, const void* src, float* dst, std::int64_t count) {
  if (arithmetic.storage == DType::bf16) {
    simd::convert_run(static_cast<const Bf16*>(src), dst, count);
  } else {
    simd::convert_run(static_cast<const F16*>(src), dst, count);
  }
}

template <class Dst>
HWY_NOINLINE void complete_run(const float* src, Dst* dst, std::int64_t count, float divisor) {
  const Vec by = simd::splat(divisor);
  simd::for_vectors(count, [&](auto access, std::int64_t i) HWY_ATTR {
    access.store(hn::Div(access.load(src + i), by), dst + i);
  });
}

// Division by one changes nothing.
void float_complete(const Arithmetic& arithmetic, const float* src, void* dst, std::int64_t count) {
  const float divisor =
      arithmetic.op == ReduceOp::avg ? static_cast<float>(arithmetic.ranks) : 1.0F;
  if (arithmetic.storage == DType::bf16) {
    complete_run(src, static_cast<Bf16*>(dst), count, divisor);
  } else if (arithmetic.storage == DType::f16) {
    complete_run(src, static_cast<F16*>(dst), count, divisor);
  } else {
    complete_run(src, static_cast<float*>(dst), count, divisor);
  }
}

}  // namespace belay::comm::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace belay::comm {
namespace {

HWY_EXPORT(float_pair);
HWY_EXPORT(float_widen);
HWY_EXPORT(float_complete);

template <class T>
T apply_scalar(ReduceOp op, T first, T second) {
  // Integers wrap around.
  using Sum =
      std::conditional_t<std::is_integral_v<T>, std::make_unsigned<T>, std::type_identity<T>>;
  using Word = typename Sum::type;
  switch (op) {
    case ReduceOp::prod:
      return static_cast<T>(static_cast<Word>(first) * static_cast<Word>(second));
    case ReduceOp::min:
      return first != first || first < second ? first : second;
    case ReduceOp::max:
      return first != first || first > second ? first : second;
    case ReduceOp::sum:
    case ReduceOp::avg:
      break;
  }
  return static_cast<T>(static_cast<Word>(first) + static_cast<Word>(second));
}

template <class T>
void scalar_pair(const Arithmetic& arithmetic, const void* first, const void* second, Result dst,
                 std::int64_t count) {
  const auto* a = static_cast<const T*>(first);
  const auto* b = static_cast<const T*>(second);
  auto* c = static_cast<T*>(dst.data);
  const bool divide = arithmetic.op == ReduceOp::avg && dst.complete;
  for (std::int64_t i = 0; i < count; ++i) {
    const T value = apply_scalar(arithmetic.op, a[i], b[i]);
    c[i] = divide ? static_cast<T>(value / static_cast<T>(arithmetic.ranks)) : value;
  }
}

template <class T>
void scalar_complete(const Arithmetic& arithmetic, const void* src, void* dst, std::int64_t count) {
  const auto* a = static_cast<const T*>(src);
  auto* c = static_cast<T*>(dst);
  const T divisor = arithmetic.op == ReduceOp::avg ? static_cast<T>(arithmetic.ranks) : T{1};
  for (std::int64_t i = 0; i < count; ++i) c[i] = static_cast<T>(a[i] / divisor);
}

// Parts are added up a block at a time, so that partial sums stay in the first cache.
constexpr std::int64_t kBlockBytes = 2048;

class PartsSum {
 public:
  PartsSum(const Arithmetic& arithmetic, std::span<const void* const> parts, bool wide)
      : arithmetic_(arithmetic),
        parts_(parts),
        wide_(wide),
        part_size_(size_of(wide ? accumulation_type(arithmetic.storage) : arithmetic.storage)) {}

  void run(Result dst, std::int64_t count, std::span<void* const> copies) {
    const std::size_t wide_size = size_of(accumulation_type(arithmetic_.storage));
    const std::size_t dst_size = dst.complete ? size_of(arithmetic_.storage) : wide_size;
    const auto block = kBlockBytes / static_cast<std::int64_t>(wide_size);
    for (std::int64_t begin = 0; begin < count; begin += block) {
      begin_ = begin;
      count_ = std::min(block, count - begin);
      const std::size_t at = static_cast<std::size_t>(begin) * dst_size;
      std::byte* const result = static_cast<std::byte*>(dst.data) + at;
      sum(0, parts_.size(), {result, dst.complete});
      for (void* const copy : copies) {
        std::memcpy(static_cast<std::byte*>(copy) + at, result,
                    static_cast<std::size_t>(count_) * dst_size);
      }
    }
  }

 private:
  [[nodiscard]] const void* part(std::size_t index) const {
    return static_cast<const std::byte*>(parts_[index]) +
           static_cast<std::size_t>(begin_) * part_size_;
  }

  // At least two parts. The recursion is as deep as the tree.
  void sum(std::size_t first, std::size_t last, Result dst) {
    alignas(64) std::byte left[kBlockBytes];
    alignas(64) std::byte right[kBlockBytes];
    const std::size_t middle = first + std::bit_floor(last - first - 1);
    reduce_pair(arithmetic_, half(first, middle, left), half(middle, last, right), dst, count_);
  }

  Values half(std::size_t first, std::size_t last, std::byte* room) {
    if (last - first == 1) return {part(first), wide_};
    sum(first, last, {room, false});
    return {room, true};
  }

  const Arithmetic& arithmetic_;
  std::span<const void* const> parts_;
  bool wide_;
  std::size_t part_size_;
  std::int64_t begin_ = 0;
  std::int64_t count_ = 0;
};

}  // namespace

void reduce_pair(const Arithmetic& arithmetic, Values first, Values second, Result dst,
                 std::int64_t count) {
  if (arithmetic.storage == DType::f64) {
    scalar_pair<double>(arithmetic, first.data, second.data, dst, count);
  } else if (arithmetic.storage == DType::i32) {
    scalar_pair<std::int32_t>(arithmetic, first.data, second.data, dst, count);
  } else {
    HWY_DYNAMIC_DISPATCH(float_pair)(arithmetic, first, second, dst, count);
  }
}

void reduce_parts(const Arithmetic& arithmetic, std::span<const void* const> parts, bool wide,
                  Result dst, std::int64_t count, std::span<void* const> copies) {
  PartsSum(arithmetic, parts, wide).run(dst, count, copies);
}

void widen_values(const Arithmetic& arithmetic, const void* src, void* dst, std::int64_t count) {
  if (accumulation_type(arithmetic.storage) == arithmetic.storage) {
    std::memmove(dst, src, static_cast<std::size_t>(count) * size_of(arithmetic.storage));
  } else {
    HWY_DYNAMIC_DISPATCH(float_widen)(arithmetic, src, static_cast<float*>(dst), count);
  }
}

void complete_values(const Arithmetic& arithmetic, const void* src, void* dst, std::int64_t count) {
  const bool same_type = accumulation_type(arithmetic.storage) == arithmetic.storage;
  if (same_type && arithmetic.op != ReduceOp::avg) {
    if (src == dst) return;
    std::memmove(dst, src, static_cast<std::size_t>(count) * size_of(arithmetic.storage));
  } else if (arithmetic.storage == DType::f64) {
    scalar_complete<double>(arithmetic, src, dst, count);
  } else if (arithmetic.storage == DType::i32) {
    scalar_complete<std::int32_t>(arithmetic, src, dst, count);
  } else {
    HWY_DYNAMIC_DISPATCH(float_complete)(arithmetic, static_cast<const float*>(src), dst, count);
  }
}

}  // namespace belay::comm
#endif  // HWY_ONCE
