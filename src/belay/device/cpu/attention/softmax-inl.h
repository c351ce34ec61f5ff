// Softmax of a query tile, built up over its key tiles. Included once per instruction set.

#if defined(BELAY_ATTENTION_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef BELAY_ATTENTION_SOFTMAX_INL_H_
#undef BELAY_ATTENTION_SOFTMAX_INL_H_
#else
#define BELAY_ATTENTION_SOFTMAX_INL_H_
#endif

#include <cfloat>
#include <cmath>

#include "belay/device/cpu/attention/simd-inl.h"
#include "belay/device/cpu/attention/tiles.h"

HWY_BEFORE_NAMESPACE();
namespace belay::attention::HWY_NAMESPACE {

// Running softmax of the queries of a tile. `largest` is in units of raw scores and starts at the
// a quarter of the lowest finite value (scale times log2(e) stays below 4) rather than -infinity,
// so that a query that has seen no key yet never gives infinity - infinity.
struct Softmax {
  alignas(64) float largest[kTile];
  alignas(64) float sum[kTile];
};

template <class T>
HWY_INLINE void keep_scores_as(const KeyTile& keys, bool saturated, float* scores) {
  const FloatTag tag;
  const Floats largest = hn::Set(tag, kLargestF16);
  HWY_ALIGN T stored[kLanes];
  for (std::int64_t j = 0; j < keys.count; ++j) {
    for (std::int64_t column = keys.first; column < keys.last; column += kLanes) {
      float* score = scores + j * kTile + column;
      Floats value = hn::Load(tag, score);
      if (saturated) {
        value = hn::IfThenZeroElse(hn::IsNaN(value), value);
        value = hn::Min(hn::Max(value, hn::Neg(largest)), largest);
      }
      store_row(static_cast<T*>(stored), value);
      hn::Store(load_row(static_cast<const T*>(stored)), tag, score);
    }
  }
}

// Scores pass through the storage type where they are not protected; see ops/inside.h.
inline HWY_NOINLINE void keep_scores(DType storage, Inside inside, const KeyTile& keys,
                                     float* scores) {
  if (storage == DType::bf16) return keep_scores_as<Bf16>(keys, false, scores);
  if (storage == DType::f16) keep_scores_as<F16>(keys, inside == Inside::saturated, scores);
}

HWY_INLINE void mask_scores(const QueryTile& queries, const KeyTile& keys, float* scores) {
  const FloatTag tag;
  const hn::RebindToSigned<FloatTag> whole;
  const Floats hidden = hn::Set(tag, -HUGE_VALF);
  for (std::int64_t column = keys.first; column < keys.last; column += kLanes) {
    const auto at = static_cast<std::size_t>(column);
    const auto begin = hn::Load(whole, &queries.begin[at]);
    const auto last = hn::Load(whole, &queries.last[at]);
    for (std::int64_t j = 0; j < keys.count; ++j) {
      const auto key = hn::Set(whole, static_cast<std::int32_t>(keys.begin + j));
      const auto invisible = hn::Or(hn::Gt(begin, key), hn::Gt(key, last));
      float* score = scores + j * kTile + column;
      hn::Store(hn::IfThenElse(hn::RebindMask(tag, invisible), hidden, hn::Load(tag, score)), tag,
                score);
    }
  }
}

HWY_INLINE void start_softmax(Softmax& softmax, float* out, std::int64_t out_floats) {
  const FloatTag tag;
  for (std::int64_t i = 0; i < kTile; i += kLanes) {
    hn::Store(hn::Set(tag, -FLT_MAX / 4), tag, softmax.largest + i);
    hn::Store(hn::Zero(tag), tag, softmax.sum + i);
  }
  for (std::int64_t i = 0; i < out_floats; i += kLanes) hn::Store(hn::Zero(tag), tag, out + i);
}

// Raises the largest scores, lets exponentiate(column, factors, offset) turn a column of scores
// into probabilities 2^(score * factors - offset) and return their sum, and rescales what was
// accumulated relative to the earlier largest scores. factor = scale * log2(e).
template <class Exponentiate>
HWY_INLINE void update_softmax(const KeyTile& keys, float factor, Softmax& softmax,
                               const float* scores, float* out, std::int64_t head_dim,
                               Exponentiate&& exponentiate) {
  const FloatTag tag;
  const Floats factors = hn::Set(tag, factor);
  for (std::int64_t column = keys.first; column < keys.last; column += kLanes) {
    const float* score = scores + column;
    const Floats before = hn::Load(tag, softmax.largest + column);
    Floats largest[4] = {before, before, before, before};
    std::int64_t j = 0;
    for (; j + 4 <= keys.count; j += 4) {
#pragma GCC unroll 4
      for (std::int64_t i = 0; i < 4; ++i) {
        largest[i] = hn::Max(largest[i], hn::Load(tag, score + (j + i) * kTile));
      }
    }
    for (; j < keys.count; ++j) {
      largest[0] = hn::Max(largest[0], hn::Load(tag, score + j * kTile));
    }
    const Floats after = hn::Max(hn::Max(largest[0], largest[1]), hn::Max(largest[2], largest[3]));
    const Floats sum = exponentiate(column, factors, hn::Mul(after, factors));
    const Floats rescale = exp2(hn::Mul(hn::Sub(before, after), factors));
    hn::Store(after, tag, softmax.largest + column);
    hn::Store(hn::MulAdd(hn::Load(tag, softmax.sum + column), rescale, sum), tag,
              softmax.sum + column);
    if (hn::AllTrue(tag, hn::Eq(rescale, hn::Set(tag, 1.0F)))) continue;
    for (std::int64_t d = 0; d < head_dim; ++d) {
      float* at = out + d * kTile + column;
      hn::Store(hn::Mul(hn::Load(tag, at), rescale), tag, at);
    }
  }
}

// out /= sum; lse = largest * scale + log(sum).
HWY_INLINE void finish_softmax(const QueryTile& queries, float scale, const Softmax& softmax,
                               float* out, std::int64_t head_dim, float* lse) {
  const FloatTag tag;
  for (std::int64_t column = 0; column < queries.columns(); column += kLanes) {
    const Floats inverse = hn::Div(hn::Set(tag, 1.0F), hn::Load(tag, softmax.sum + column));
    for (std::int64_t d = 0; d < head_dim; ++d) {
      float* at = out + d * kTile + column;
      hn::Store(hn::Mul(hn::Load(tag, at), inverse), tag, at);
    }
  }
  if (lse == nullptr) return;
  for (std::int64_t i = 0; i < queries.count; ++i) {
    lse[i] = softmax.largest[i] * scale + std::log(softmax.sum[i]);
  }
}

}  // namespace belay::attention::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
