// Attention of one new query per row over a cache of keys and values, as generation needs it. The
// work is reading the cache once, so vectors run along the head dimension and nothing is packed;
// all heads of a group share what is read.

#include <cfloat>
#include <cmath>

#include "belay/base/parallel.h"
#include "belay/device/cpu/attention/kernels.h"
#include "belay/device/key_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "belay/device/cpu/attention/decode.cc"
#include "belay/device/cpu/attention/targets.h"

#include <hwy/foreach_target.h>

#include "belay/device/cpu/attention/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace belay::attention::HWY_NAMESPACE {

template <class T>
HWY_INLINE float dot(const float* query, const T* key, std::int64_t dim) {
  const FloatTag tag;
  Floats sum = hn::Zero(tag);
  std::int64_t d = 0;
  for (; d + kLanes <= dim; d += kLanes) {
    sum = hn::MulAdd(hn::Load(tag, query + d), load_row(key + d), sum);
  }
  float total = hn::GetLane(hn::SumOfLanes(tag, sum));
  for (; d < dim; ++d) total += query[d] * load_one(key + d);
  return total;
}

// Scores in units of log2 -> probabilities relative to the largest so far. Returns the factor for
// what was accumulated before.
HWY_INLINE float update_softmax(DecodeHead& head, std::int64_t count) {
  const FloatTag tag;
  for (std::int64_t j = count; j < kTile; ++j) head.scores[j] = -HUGE_VALF;
  Floats largest = hn::Set(tag, head.largest);
  for (std::int64_t j = 0; j < kTile; j += kLanes) {
    largest = hn::Max(largest, hn::Load(tag, head.scores + j));
  }
  largest = hn::MaxOfLanes(tag, largest);
  Floats sum = hn::Zero(tag);
  for (std::int64_t j = 0; j < kTile; j += kLanes) {
    const Floats p = exp2(hn::Sub(hn::Load(tag, head.scores + j), largest));
    hn::Store(p, tag, head.scores + j);
    sum = hn::Add(sum, p);
  }
  const float rescale = hn::GetLane(exp2(hn::Sub(hn::Set(tag, head.largest), largest)));
  head.largest = hn::GetLane(largest);
  head.sum = head.sum * rescale + hn::GetLane(hn::SumOfLanes(tag, sum));
  return rescale;
}

// out = out * rescale + sum over keys of p[key] * (v + at[key]).
template <class T>
HWY_INLINE void accumulate_values(const float* p, const T* v, const std::int64_t* at,
                                  std::int64_t count, std::int64_t dim, float rescale, float* out) {
  const FloatTag tag;
  std::int64_t d = 0;
  for (; d + kLanes <= dim; d += kLanes) {
    // Two sums hide the latency of the multiply-adds.
    Floats even = hn::Mul(hn::Load(tag, out + d), hn::Set(tag, rescale));
    Floats odd = hn::Zero(tag);
    std::int64_t j = 0;
    for (; j + 2 <= count; j += 2) {
      even = hn::MulAdd(hn::Set(tag, p[j]), load_row(v + at[j] + d), even);
      odd = hn::MulAdd(hn::Set(tag, p[j + 1]), load_row(v + at[j + 1] + d), odd);
    }
    if (j < count) even = hn::MulAdd(hn::Set(tag, p[j]), load_row(v + at[j] + d), even);
    hn::Store(hn::Add(even, odd), tag, out + d);
  }
  for (; d < dim; ++d) {
    float sum = out[d] * rescale;
    for (std::int64_t j = 0; j < count; ++j) sum += p[j] * load_one(v + at[j] + d);
    out[d] = sum;
  }
}

template <class T>
HWY_INLINE void decode(const AttentionForwardArgs& args, std::int64_t batch, std::int64_t kv_head,
                       DecodeHead* heads, float* rows) {
  const AttentionShape& s = args.shape;
  const std::int64_t dim = s.head_dim;
  const std::int64_t stride = padded(dim);
  const std::int64_t group = s.heads / s.kv_heads;
  const std::int64_t width = s.heads * dim;
  const std::int64_t column = kv_head * group * dim;
  const float factor = s.scale * 0x1.715476p0F;  // log2(e)
  float* queries = rows;
  float* out = rows + group * stride;
  for (std::int64_t g = 0; g < group; ++g) {
    heads[g].largest = -FLT_MAX;
    heads[g].sum = 0.0F;
    for (std::int64_t d = 0; d < stride; ++d) {
      queries[g * stride + d] =
          d < dim ? load_one(args.q.row<T>(batch) + column + g * dim + d) * factor : 0.0F;
      out[g * stride + d] = 0.0F;
    }
  }
  const std::int64_t begin = args.doc_begin.empty() ? 0 : args.doc_begin.as<std::int32_t>()[batch];
  const KeyRows key_rows(args, batch);
  std::int64_t v_at[kTile];  // where the values of a tile's keys start
  for (std::int64_t key = begin; key < key_rows.count(); key += kTile) {
    const std::int64_t count = std::min(kTile, key_rows.count() - key);
    for (std::int64_t j = 0; j < count; ++j) {
      const std::int64_t row = key_rows.row(key + j);
      v_at[j] = row * args.v.stride;
      const T* k = args.k.row<T>(row) + kv_head * dim;
      for (std::int64_t g = 0; g < group; ++g) {
        heads[g].scores[j] = dot(queries + g * stride, k, dim);
      }
    }
    for (std::int64_t g = 0; g < group; ++g) {
      const float rescale = update_softmax(heads[g], count);
      accumulate_values(heads[g].scores, args.v.row<T>(0) + kv_head * dim, v_at, count, dim,
                        rescale, out + g * stride);
    }
  }
  for (std::int64_t g = 0; g < group; ++g) {
    unpack_rows(out + g * stride, stride, 1, dim, 1.0F / heads[g].sum,
                args.dst.as<T>() + batch * width + column + g * dim, width);
    if (args.lse.empty()) continue;
    args.lse.as<float>()[batch * s.heads + kv_head * group + g] =
        heads[g].largest * 0x1.62e43p-1F + std::log(heads[g].sum);  // ln(2)
  }
}

HWY_NOINLINE void decode_group(const AttentionForwardArgs& args, std::int64_t batch,
                               std::int64_t kv_head, DecodeHead* heads, float* rows) {
  switch (args.q.dtype) {
    case DType::f32:
      return decode<float>(args, batch, kv_head, heads, rows);
    case DType::bf16:
      return decode<Bf16>(args, batch, kv_head, heads, rows);
    case DType::f16:
      return decode<F16>(args, batch, kv_head, heads, rows);
    default:
      BELAY_CHECK(false);
  }
}

}  // namespace belay::attention::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace belay::attention {

HWY_EXPORT(decode_group);

namespace {

// Bytes of one thread: the heads of a group, then their queries and results.
std::size_t heads_bytes(const AttentionShape& shape) {
  return static_cast<std::size_t>(shape.heads / shape.kv_heads) * sizeof(DecodeHead);
}
std::size_t slot_bytes(const AttentionShape& shape) {
  const std::int64_t floats = 2 * shape.heads / shape.kv_heads * padded(shape.head_dim);
  return heads_bytes(shape) + static_cast<std::size_t>(floats) * sizeof(float);
}

}  // namespace

std::size_t decode_workspace(const AttentionForwardArgs& args) {
  return static_cast<std::size_t>(thread_count()) * slot_bytes(args.shape);
}

void run_decode(const AttentionForwardArgs& args, KernelContext& context) {
  const AttentionShape& s = args.shape;
  BELAY_CHECK(context.workspace_bytes >= decode_workspace(args));
  const auto group = HWY_DYNAMIC_DISPATCH(decode_group);
  parallel_for(s.batch * s.kv_heads, [&](std::int64_t index) {
    std::byte* slot = context.workspace + static_cast<std::size_t>(thread_index()) * slot_bytes(s);
    group(args, index / s.kv_heads, index % s.kv_heads, reinterpret_cast<DecodeHead*>(slot),
          reinterpret_cast<float*>(slot + heads_bytes(s)));
  });
}

}  // namespace belay::attention
#endif
