#pragma once
// An attention problem for tests: random operands inside larger buffers, so that rows are strided,
// starts are not aligned to vectors, and anything written outside the operands shows.

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "belay/base/philox.h"
#include "belay/device/ops/attention.h"
#include "belay/device/reference/element.h"

namespace belay::attention {

enum class Documents { none, random, padded_tail };

struct ProblemSpec {
  AttentionShape shape;
  DType dtype = DType::f32;
  Documents documents = Documents::none;
  std::uint32_t seed = 1;
};

// `rows` rows of `stride` elements with spare elements before and after.
class Buffer {
 public:
  static constexpr std::int64_t kSpare = 5;  // elements: leaves starts misaligned

  Buffer(DType dtype, std::int64_t rows, std::int64_t stride)
      : dtype_(dtype),
        bytes_(static_cast<std::size_t>(rows * stride + 2 * kSpare) * size_of(dtype), 0xa5) {}

  [[nodiscard]] void* at(std::int64_t element) {
    return bytes_.data() + static_cast<std::size_t>(kSpare + element) * size_of(dtype_);
  }
  [[nodiscard]] const std::vector<std::uint8_t>& bytes() const { return bytes_; }

 private:
  DType dtype_;
  std::vector<std::uint8_t> bytes_;
};

inline float normal_like(const RandomKey& key, std::int64_t index) {
  const PhiloxBlock block = random_block(key, static_cast<std::uint64_t>(index));
  return uniform(block[0]) + uniform(block[1]) + uniform(block[2]) - uniform(block[3]) - 1.0F;
}

inline void fill_random(const Rows& rows, std::uint32_t seed, std::uint32_t stream, float scale) {
  for (std::int64_t row = 0; row < rows.rows; ++row) {
    for (std::int64_t column = 0; column < rows.width; ++column) {
      store(rows, row, column,
            static_cast<double>(scale * normal_like({seed, 0, stream}, row * rows.width + column)));
    }
  }
}

// q, k, v in one fused buffer when the lengths agree, results in buffers of their own.
struct Problem {
  ProblemSpec spec;
  std::int64_t q_width, kv_width, stride;
  Buffer fused_q, fused_kv, gradients, dst_buffer, d_dst_buffer, lse_buffer;
  std::vector<std::int32_t> documents;
  AttentionForwardArgs forward;
  AttentionBackwardArgs backward;

  explicit Problem(const ProblemSpec& wanted, DType result_dtype)
      : spec(wanted),
        q_width(wanted.shape.heads * wanted.shape.head_dim),
        kv_width(wanted.shape.kv_heads * wanted.shape.head_dim),
        stride(q_width + 2 * kv_width + 3),
        fused_q(wanted.dtype, wanted.shape.batch * wanted.shape.q_len, stride),
        fused_kv(wanted.dtype, wanted.shape.batch * wanted.shape.kv_len, stride),
        gradients(result_dtype, wanted.shape.batch * wanted.shape.kv_len, stride),
        dst_buffer(result_dtype, wanted.shape.batch * wanted.shape.q_len, q_width),
        d_dst_buffer(wanted.dtype, wanted.shape.batch * wanted.shape.q_len, q_width),
        lse_buffer(DType::f32, wanted.shape.batch * wanted.shape.q_len, wanted.shape.heads) {
    const AttentionShape& s = spec.shape;
    const std::int64_t q_rows = s.batch * s.q_len;
    const std::int64_t kv_rows = s.batch * s.kv_len;
    forward.shape = s;
    forward.q = {fused_q.at(0), spec.dtype, q_rows, q_width, stride};
    forward.k = {fused_kv.at(q_width), spec.dtype, kv_rows, kv_width, stride};
    forward.v = {fused_kv.at(q_width + kv_width), spec.dtype, kv_rows, kv_width, stride};
    fill_random(forward.q, spec.seed, 0, 2.0F);
    fill_random(forward.k, spec.seed, 1, 2.0F);
    fill_random(forward.v, spec.seed, 2, 1.0F);
    make_documents();
    if (!documents.empty()) forward.doc_begin = {documents.data(), DType::i32, {q_rows}};
    forward.dst = {dst_buffer.at(0), result_dtype, {q_rows, q_width}};
    forward.lse = {lse_buffer.at(0), DType::f32, {s.batch, s.heads, s.q_len}};

    const Tensor d_dst{d_dst_buffer.at(0), spec.dtype, {q_rows, q_width}};
    fill_random(columns(d_dst, 0, q_width), spec.seed, 3, 1.0F);
    backward = {s,
                forward.q,
                forward.k,
                forward.v,
                forward.doc_begin,
                forward.dst,
                forward.lse,
                d_dst,
                {gradients.at(0), result_dtype, q_rows, q_width, stride},
                {gradients.at(q_width), result_dtype, kv_rows, kv_width, stride},
                {gradients.at(q_width + kv_width), result_dtype, kv_rows, kv_width, stride}};
  }
  Problem(const Problem&) = delete;
  Problem& operator=(const Problem&) = delete;

 private:
  void make_documents() {
    if (spec.documents == Documents::none) return;
    const AttentionShape& s = spec.shape;
    const std::int64_t offset = s.kv_len - s.q_len;
    for (std::int64_t batch = 0; batch < s.batch; ++batch) {
      std::int64_t begin = offset / 2;
      for (std::int64_t i = 0; i < s.q_len; ++i) {
        const RandomKey key{spec.seed, 0, 4};
        const float draw =
            uniform(random_block(key, static_cast<std::uint64_t>(batch * s.q_len + i))[0]);
        const bool padding = spec.documents == Documents::padded_tail && i >= s.q_len * 3 / 4;
        if (padding || draw < 0.03F) begin = offset + i;
        documents.push_back(static_cast<std::int32_t>(begin));
      }
    }
  }
};

inline AttentionShape make_shape(std::int64_t batch, std::int64_t q_len, std::int64_t kv_len,
                                 std::int64_t heads, std::int64_t kv_heads, std::int64_t head_dim) {
  return {batch,
          q_len,
          kv_len,
          heads,
          kv_heads,
          head_dim,
          1.0F / std::sqrt(static_cast<float>(head_dim))};
}

// Root mean square of the elements.
inline double magnitude(const Rows& rows) {
  double total = 0;
  for (std::int64_t row = 0; row < rows.rows; ++row) {
    for (std::int64_t column = 0; column < rows.width; ++column) {
      total += load(rows, row, column) * load(rows, row, column);
    }
  }
  return std::sqrt(total / static_cast<double>(rows.rows * rows.width));
}

// Root mean square and largest of values - expected, both relative to `scale`; infinite for NaN.
struct Difference {
  double mean = 0;
  double largest = 0;
};

inline Difference difference(const Rows& values, const Rows& expected, double scale) {
  double total = 0, worst = 0;
  for (std::int64_t row = 0; row < values.rows; ++row) {
    for (std::int64_t column = 0; column < values.width; ++column) {
      const double gap = std::abs(load(values, row, column) - load(expected, row, column));
      total += gap * gap;
      worst = std::isnan(gap) ? HUGE_VAL : std::max(worst, gap);
    }
  }
  const double mean = std::sqrt(total / static_cast<double>(values.rows * values.width));
  return {std::isnan(mean) ? HUGE_VAL : mean / scale, worst / scale};
}

}  // namespace belay::attention
