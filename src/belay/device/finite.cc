#include "belay/device/finite.h"

#include <atomic>
#include <cmath>

#include "belay/base/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "belay/device/finite.cc"
// foreach_target.h compiles this file again per instruction set, so the order matters.
// clang-format off
#include "belay/base/simd_targets.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace belay::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Bits is signed. An element is not finite when all bits of `exponent` are set in it, so when its
// magnitude is not below them.
template <class Bits>
bool any_from(const void* data, std::int64_t count, Bits exponent) {
  const hn::ScalableTag<Bits> d;
  const auto* from = static_cast<const Bits*>(data);
  const auto step = static_cast<std::int64_t>(hn::Lanes(d));
  const auto mask = hn::Set(d, exponent);
  auto largest0 = hn::Zero(d);
  auto largest1 = largest0;
  std::int64_t i = 0;
  for (; i + 2 * step <= count; i += 2 * step) {
    largest0 = hn::Max(largest0, hn::And(hn::LoadU(d, from + i), mask));
    largest1 = hn::Max(largest1, hn::And(hn::LoadU(d, from + i + step), mask));
  }
  bool found = !hn::AllFalse(d, hn::Eq(hn::Max(largest0, largest1), mask));
  for (; i < count; ++i) found = found || (from[i] & exponent) == exponent;
  return found;
}

bool any_16(const void* data, std::int64_t count, std::int16_t exponent) {
  return any_from<std::int16_t>(data, count, exponent);
}
bool any_32(const void* data, std::int64_t count) {
  return any_from<std::int32_t>(data, count, 0x7f800000);
}

}  // namespace belay::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace belay {
namespace {

HWY_EXPORT(any_16);
HWY_EXPORT(any_32);

bool any_in_run(DType dtype, const void* data, std::int64_t count) {
  switch (dtype) {
    case DType::f64: {
      const auto* values = static_cast<const double*>(data);
      for (std::int64_t i = 0; i < count; ++i) {
        if (!std::isfinite(values[i])) return true;
      }
      return false;
    }
    case DType::f32:
      return HWY_DYNAMIC_DISPATCH(any_32)(data, count);
    case DType::bf16:
      return HWY_DYNAMIC_DISPATCH(any_16)(data, count, 0x7f80);
    case DType::f16:
      return HWY_DYNAMIC_DISPATCH(any_16)(data, count, 0x7c00);
    default:
      return false;
  }
}

// Whether look(first element, count) says so of any of the runs that the rows are cut into.
template <class Look>
bool any_of_runs(const Rows& rows, const Look& look) {
  constexpr std::int64_t kRunElements = std::int64_t{1} << 16;
  const bool whole = rows.rows <= 1 || rows.stride == rows.width;
  const std::int64_t width = whole ? rows.rows * rows.width : rows.width;
  const std::int64_t lines = whole ? 1 : rows.rows;
  const std::int64_t per_line = pieces_of(width, kRunElements);
  const std::int64_t lines_per_piece =
      std::max<std::int64_t>(1, kRunElements / std::max<std::int64_t>(1, width));
  std::atomic<bool> found = false;
  parallel_for(pieces_of(lines, lines_per_piece) * per_line, [&](std::int64_t piece) {
    const std::int64_t first = piece / per_line * lines_per_piece;
    const std::int64_t begin = piece % per_line * kRunElements;
    for (std::int64_t line = first; line < std::min(lines, first + lines_per_piece); ++line) {
      if (look(line * rows.stride + begin, std::min(kRunElements, width - begin))) {
        found.store(true, std::memory_order_relaxed);
      }
    }
  });
  return found.load(std::memory_order_relaxed);
}

class SettleHalves final : public ResultVisitor {
 public:
  explicit SettleHalves(Overflow overflow) : overflow_(overflow) {}
  void result(std::string_view, const Rows& rows) override {
    if (rows.dtype != DType::f16) return;
    const bool found = overflow_ == Overflow::saturate ? saturate(rows) : has_non_finite(rows);
    found_ = found_ || found;
  }
  [[nodiscard]] bool found() const { return found_; }

 private:
  Overflow overflow_;
  bool found_ = false;
};

}  // namespace

bool has_non_finite(const Rows& rows) {
  const std::size_t size = size_of(rows.dtype);
  return any_of_runs(rows, [&](std::int64_t at, std::int64_t count) {
    const auto* from =
        static_cast<const std::byte*>(rows.data) + static_cast<std::size_t>(at) * size;
    return any_in_run(rows.dtype, from, count);
  });
}

bool saturate(const Rows& rows) {
  BELAY_CHECK(rows.dtype == DType::f16);
  return any_of_runs(rows, [&](std::int64_t at, std::int64_t count) {
    F16* run = static_cast<F16*>(rows.data) + at;
    if (!any_in_run(DType::f16, run, count)) return false;
    for (std::int64_t i = 0; i < count; ++i) {
      const auto magnitude = static_cast<std::uint16_t>(run[i].bits & 0x7fffU);
      if (magnitude > 0x7c00U) run[i].bits = 0;
      if (magnitude == 0x7c00U) run[i].bits = static_cast<std::uint16_t>(run[i].bits - 1U);
    }
    return true;
  });
}

bool settle_halves(const OpCall& call, Overflow overflow) {
  SettleHalves settle(overflow);
  call.visit_results(call, settle);
  return settle.found();
}

}  // namespace belay
#endif  // HWY_ONCE
