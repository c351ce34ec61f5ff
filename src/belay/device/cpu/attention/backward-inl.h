// What both backward kernels share: row statistics and the gradient through the softmax. Included
// once per instruction set.

#if defined(BELAY_ATTENTION_BACKWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef BELAY_ATTENTION_BACKWARD_INL_H_
#undef BELAY_ATTENTION_BACKWARD_INL_H_
#else
#define BELAY_ATTENTION_BACKWARD_INL_H_
#endif

#include "belay/device/cpu/attention/simd-inl.h"
#include "belay/device/cpu/attention/tiles.h"

HWY_BEFORE_NAMESPACE();
namespace belay::attention::HWY_NAMESPACE {

// Per query: the forward pass's log-sum-exp in base 2, and rowsum(d_dst * dst).
struct RowStatistics {
  alignas(64) float lse[kTile];
  alignas(64) float delta[kTile];
};

template <class T>
HWY_INLINE void row_statistics_of(const AttentionBackwardArgs& args, std::int64_t batch,
                                  std::int64_t head, const QueryTile& queries,
                                  RowStatistics& statistics) {
  const AttentionShape& s = args.shape;
  const std::int64_t dim = s.head_dim;
  const std::int64_t width = s.heads * dim;
  const FloatTag tag;
  const std::int64_t offset = (batch * s.q_len + queries.first) * width + head * dim;
  const T* dst = args.dst.as<T>() + offset;
  const T* d_dst = args.d_dst.as<T>() + offset;
  const float* lse = args.lse.as<float>() + (batch * s.heads + head) * s.q_len + queries.first;
  for (std::int64_t i = 0; i < kTile; ++i) {
    statistics.lse[i] = 0.0F;
    statistics.delta[i] = 0.0F;
    if (i >= queries.count) continue;
    Floats sum = hn::Zero(tag);
    std::int64_t d = 0;
    for (; d + kLanes <= dim; d += kLanes) {
      sum = hn::MulAdd(load_row(dst + i * width + d), load_row(d_dst + i * width + d), sum);
    }
    float delta = hn::GetLane(hn::SumOfLanes(tag, sum));
    for (; d < dim; ++d) delta += load_one(dst + i * width + d) * load_one(d_dst + i * width + d);
    statistics.lse[i] = lse[i] * 0x1.715476p0F;  // log2(e)
    statistics.delta[i] = delta;
  }
}

HWY_INLINE void row_statistics(const AttentionBackwardArgs& args, std::int64_t batch,
                               std::int64_t head, const QueryTile& queries,
                               RowStatistics& statistics) {
  switch (args.dst.dtype) {
    case DType::f32:
      return row_statistics_of<float>(args, batch, head, queries, statistics);
    case DType::bf16:
      return row_statistics_of<Bf16>(args, batch, head, queries, statistics);
    case DType::f16:
      return row_statistics_of<F16>(args, batch, head, queries, statistics);
    default:
      BELAY_CHECK(false);
  }
}

// For one vector of queries, key by key: score -> probability p, and its gradient -> gradient of
// the score, d_s = p * (d_p - delta), without the factor `scale` that d_q and d_k get at the end.
template <bool kMasked>
struct SoftmaxGradient {
  Floats factors, lse, delta;
  hn::Vec<hn::RebindToSigned<FloatTag>> begin, last;
  std::int64_t first_key;

  HWY_INLINE SoftmaxGradient(const QueryTile& queries, const KeyTile& keys, float factor,
                             const RowStatistics& rows, std::int64_t column) {
    const FloatTag tag;
    const hn::RebindToSigned<FloatTag> whole;
    factors = hn::Set(tag, factor);
    lse = hn::Load(tag, rows.lse + column);
    delta = hn::Load(tag, rows.delta + column);
    begin = hn::Load(whole, &queries.begin[static_cast<std::size_t>(column)]);
    last = hn::Load(whole, &queries.last[static_cast<std::size_t>(column)]);
    first_key = keys.begin;
  }

  HWY_INLINE void apply(std::int64_t key, Floats& p, Floats& d_s) const {
    const FloatTag tag;
    p = exp2(hn::MulSub(p, factors, lse));
    if constexpr (kMasked) {
      const hn::RebindToSigned<FloatTag> whole;
      const auto position = hn::Set(whole, static_cast<std::int32_t>(first_key + key));
      const auto invisible = hn::Or(hn::Gt(begin, position), hn::Gt(position, last));
      p = hn::IfThenZeroElse(hn::RebindMask(tag, invisible), p);
    }
    d_s = hn::Mul(p, hn::Sub(d_s, delta));
  }
};

}  // namespace belay::attention::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
