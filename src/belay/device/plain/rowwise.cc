// Plain passes over rows: statistics, normalisation, exponentials.

#include <cmath>

#include "belay/device/plain/passes.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "belay/device/plain/rowwise.cc"
// foreach_target.h compiles this file again per instruction set, so the order matters.
// clang-format off
#include "belay/base/simd_targets.h"
#include "hwy/foreach_target.h"
#include "belay/device/plain/runs-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace belay::plain::HWY_NAMESPACE {

void row_sum(const Rows& x, float* dst) {
  with_storage(x.dtype, [&](auto as) HWY_ATTR {
    over_rows(x, [&](std::int64_t row) HWY_ATTR {
      const auto* from = x.row<decltype(as)>(row);
      dst[row] = sum_over(
          x.width, [&](auto access, std::int64_t i) HWY_ATTR { return access.load(from + i); });
    });
  });
}

void row_max(const Rows& x, float* dst) {
  with_storage(x.dtype, [&](auto as) HWY_ATTR {
    over_rows(x, [&](std::int64_t row)
                     HWY_ATTR { dst[row] = max_over(x.row<decltype(as)>(row), x.width); });
  });
}

void row_rstd(const Rows& x, const float* centre, float eps, float* dst) {
  with_storage(x.dtype, [&](auto as) HWY_ATTR {
    over_rows(x, [&](std::int64_t row) HWY_ATTR {
      const auto* from = x.row<decltype(as)>(row);
      const Vec mean = splat(centre == nullptr ? 0.0F : centre[row]);
      const float squares = sum_over(x.width, [&](auto access, std::int64_t i) HWY_ATTR {
        const Vec centred = hn::Sub(access.load(from + i), mean);
        return hn::Mul(centred, centred);
      });
      dst[row] = 1.0F / std::sqrt(squares / static_cast<float>(x.width) + eps);
    });
  });
}

void normalise_rows(const Rows& x, const float* centre, const float* rate, const Rows& dst) {
  with_storage(x.dtype, [&](auto from_type) HWY_ATTR {
    with_storage(dst.dtype, [&](auto to_type) HWY_ATTR {
      over_rows(x, [&](std::int64_t row) HWY_ATTR {
        const auto* from = x.row<decltype(from_type)>(row);
        auto* to = dst.row<decltype(to_type)>(row);
        const Vec shift = splat(centre == nullptr ? 0.0F : centre[row]);
        const Vec factor = splat(rate == nullptr ? 1.0F : rate[row]);
        for_vectors(x.width, [&](auto access, std::int64_t i) HWY_ATTR {
          access.store(hn::Mul(hn::Sub(access.load(from + i), shift), factor), to + i);
        });
      });
    });
  });
}

void exp_rows(const Rows& x, const float* shift, const Rows& dst) {
  with_storage(x.dtype, [&](auto from_type) HWY_ATTR {
    over_rows(x, [&](std::int64_t row) HWY_ATTR {
      const auto* from = x.row<decltype(from_type)>(row);
      float* to = dst.row<float>(row);
      const Vec largest = splat(shift[row]);
      for_vectors(x.width, [&](auto access, std::int64_t i) HWY_ATTR {
        access.store(exp_nonpositive(hn::Sub(access.load(from + i), largest)), to + i);
      });
    });
  });
}

void multiply_columns(const Rows& x, const float* weight, const Rows& dst) {
  with_storage(dst.dtype, [&](auto as) HWY_ATTR {
    over_rows(x, [&](std::int64_t row) HWY_ATTR {
      const auto* from = x.row<decltype(as)>(row);
      auto* to = dst.row<decltype(as)>(row);
      for_vectors(x.width, [&](auto access, std::int64_t i) HWY_ATTR {
        access.store(hn::Mul(access.load(from + i), access.load(weight + i)), to + i);
      });
    });
  });
}

void add_columns(const Rows& x, const float* bias, const Rows& dst) {
  with_storage(dst.dtype, [&](auto as) HWY_ATTR {
    over_rows(x, [&](std::int64_t row) HWY_ATTR {
      const auto* from = x.row<decltype(as)>(row);
      auto* to = dst.row<decltype(as)>(row);
      for_vectors(x.width, [&](auto access, std::int64_t i) HWY_ATTR {
        access.store(hn::Add(access.load(from + i), access.load(bias + i)), to + i);
      });
    });
  });
}

}  // namespace belay::plain::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace belay::plain {
namespace {

HWY_EXPORT(row_sum);
HWY_EXPORT(row_max);
HWY_EXPORT(row_rstd);
HWY_EXPORT(normalise_rows);
HWY_EXPORT(exp_rows);
HWY_EXPORT(multiply_columns);
HWY_EXPORT(add_columns);

}  // namespace

void row_sum(const Rows& x, float* dst) {
  HWY_DYNAMIC_DISPATCH(row_sum)(x, dst);
}
void row_max(const Rows& x, float* dst) {
  HWY_DYNAMIC_DISPATCH(row_max)(x, dst);
}
void row_rstd(const Rows& x, const float* centre, float eps, float* dst) {
  HWY_DYNAMIC_DISPATCH(row_rstd)(x, centre, eps, dst);
}
void normalise_rows(const Rows& x, const float* centre, const float* rate, const Rows& dst) {
  HWY_DYNAMIC_DISPATCH(normalise_rows)(x, centre, rate, dst);
}
void exp_rows(const Rows& x, const float* shift, const Rows& dst) {
  HWY_DYNAMIC_DISPATCH(exp_rows)(x, shift, dst);
}
void multiply_columns(const Rows& x, const float* weight, const Rows& dst) {
  HWY_DYNAMIC_DISPATCH(multiply_columns)(x, weight, dst);
}
void add_columns(const Rows& x, const float* bias, const Rows& dst) {
  HWY_DYNAMIC_DISPATCH(add_columns)(x, bias, dst);
}

}  // namespace belay::plain
#endif  // HWY_ONCE
