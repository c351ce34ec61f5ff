// Plain passes of attention: masked softmax over whole rows of scores, its gradient, and the copies
// that give every head a matrix of its own.

#include <cmath>
#include <cstring>

#include "belay/device/plain/passes.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "belay/device/plain/scores.cc"
// foreach_target.h compiles this file again per instruction set, so the order matters.
// clang-format off
#include "belay/base/simd_targets.h"
#include "hwy/foreach_target.h"
#include "belay/device/plain/runs-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace belay::plain::HWY_NAMESPACE {

// scores[0, count) become their softmax; returns the log-sum-exp.
template <class T>
HWY_INLINE float softmax_row(float scale, T* scores, std::int64_t count) {
  const float largest = max_over(scores, count) * scale;
  const Vec factor = splat(scale);
  const Vec shift = splat(largest);
  const auto exp_at = [&](auto access, std::int64_t i) HWY_ATTR {
    return exp_nonpositive(hn::MulSub(access.load(scores + i), factor, shift));
  };
  const float sum = sum_over(count, [&](auto access, std::int64_t i) HWY_ATTR {
    const Vec e = exp_at(access, i);
    // f32 keeps them; 16 bits would round twice, so they are computed again.
    if constexpr (std::is_same_v<T, float>) access.store(e, scores + i);
    return e;
  });
  const Vec inverse = splat(1.0F / sum);
  for_vectors(count, [&](auto access, std::int64_t i) HWY_ATTR {
    if constexpr (std::is_same_v<T, float>) {
      access.store(hn::Mul(access.load(scores + i), inverse), scores + i);
    } else {
      access.store(hn::Mul(exp_at(access, i), inverse), scores + i);
    }
  });
  return largest + std::log(sum);
}

void masked_softmax(const ScoreShape& shape, float scale, const Rows& scores, float* lse) {
  with_storage(scores.dtype, [&](auto as) HWY_ATTR {
    using T = decltype(as);
    over_rows(scores, [&](std::int64_t row) HWY_ATTR {
      const std::int64_t i = row % shape.q_len;
      const std::int64_t batch = row / (shape.q_len * shape.heads);
      const std::int64_t begin =
          shape.doc_begin == nullptr ? 0 : shape.doc_begin[batch * shape.q_len + i];
      const std::int64_t end = shape.kv_len - shape.q_len + i + 1;
      T* x = scores.row<T>(row);
      std::memset(x, 0, static_cast<std::size_t>(begin) * sizeof(T));
      std::memset(x + end, 0, static_cast<std::size_t>(shape.kv_len - end) * sizeof(T));
      const float log_sum = softmax_row(scale, x + begin, end - begin);
      if (lse != nullptr) lse[row] = log_sum;
    });
  });
}

void softmax_gradient(float scale, const Rows& p, const Rows& d_p) {
  const Vec factor = splat(scale);
  with_storage(p.dtype, [&](auto as) HWY_ATTR {
    using T = decltype(as);
    over_rows(p, [&](std::int64_t row) HWY_ATTR {
      const T* weights = p.row<T>(row);
      T* d = d_p.row<T>(row);
      const Vec delta = splat(sum_over(p.width, [&](auto access, std::int64_t i) HWY_ATTR {
        return hn::Mul(access.load(weights + i), access.load(d + i));
      }));
      for_vectors(p.width, [&](auto access, std::int64_t i) HWY_ATTR {
        const Vec inner = hn::Sub(access.load(d + i), delta);
        access.store(hn::Mul(hn::Mul(factor, access.load(weights + i)), inner), d + i);
      });
    });
  });
}

// Copies between row (batch, position) of `rows` and row (batch, head, position) of `split`.
template <bool kSplit>
void move_heads(const Rows& rows, std::int64_t length, std::int64_t dim, const Tensor& split) {
  const std::int64_t heads = rows.width / dim;
  with_storage(rows.dtype, [&](auto rows_type) HWY_ATTR {
    with_storage(split.dtype, [&](auto split_type) HWY_ATTR {
      over_rows(rows, [&](std::int64_t row) HWY_ATTR {
        const std::int64_t batch = row / length;
        const std::int64_t position = row % length;
        for (std::int64_t head = 0; head < heads; ++head) {
          auto* together = rows.row<decltype(rows_type)>(row) + head * dim;
          auto* apart =
              split.as<decltype(split_type)>() + ((batch * heads + head) * length + position) * dim;
          if constexpr (kSplit) {
            convert_run(together, apart, dim);
          } else {
            convert_run(apart, together, dim);
          }
        }
      });
    });
  });
}

void split_heads(const Rows& src, std::int64_t length, std::int64_t dim, const Tensor& dst) {
  move_heads<true>(src, length, dim, dst);
}
void merge_heads(const Tensor& src, std::int64_t length, std::int64_t dim, const Rows& dst) {
  move_heads<false>(dst, length, dim, src);
}

}  // namespace belay::plain::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace belay::plain {
namespace {

HWY_EXPORT(masked_softmax);
HWY_EXPORT(softmax_gradient);
HWY_EXPORT(split_heads);
HWY_EXPORT(merge_heads);

}  // namespace

void masked_softmax(const ScoreShape& shape, float scale, const Rows& scores, float* lse) {
  HWY_DYNAMIC_DISPATCH(masked_softmax)(shape, scale, scores, lse);
}
void softmax_gradient(float scale, const Rows& p, const Rows& d_p) {
  HWY_DYNAMIC_DISPATCH(softmax_gradient)(scale, p, d_p);
}
void split_heads(const Rows& src, std::int64_t length, std::int64_t dim, const Tensor& dst) {
  HWY_DYNAMIC_DISPATCH(split_heads)(src, length, dim, dst);
}
void merge_heads(const Tensor& src, std::int64_t length, std::int64_t dim, const Rows& dst) {
  HWY_DYNAMIC_DISPATCH(merge_heads)(src, length, dim, dst);
}

}  // namespace belay::plain
#endif  // HWY_ONCE
