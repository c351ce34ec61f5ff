#pragma once
// Plain passes: each reads its operands from memory, does one simple thing and writes its result
// back, as the operators of a general tensor library do. Together they are what the fused operators
// are measured and checked against. They run on host memory, on the calling thread's lane of work,
// in vectors and on all threads. All operands of a pass have one storage type (f32, bf16 or f16)
// and one size unless said otherwise; a result may alias an operand.

#include "belay/base/tensor.h"

namespace belay::plain {

// A whole tensor as rows of its last dimension.
Rows all(const Tensor& tensor);

// --- pointwise ---

enum class Function : std::uint8_t {
  sigmoid,        // 1 / (1 + e^-x)
  normal_below,   // P(X <= x) of the standard normal distribution
  normal_density  // its density
};
void apply(Function function, const Rows& x, const Rows& dst);

// dst = alpha x + beta; storage may differ
void affine(const Rows& x, float alpha, float beta, const Rows& dst);

enum class Binary : std::uint8_t {
  add,              // a + b
  subtract,         // a - b
  multiply,         // a b
  sigmoid_gradient  // a b (1 - b): a gradient through b = sigmoid(x)
};
void combine(Binary binary, const Rows& a, const Rows& b, const Rows& dst);

// --- of rows; statistics are f32, one per row ---

void row_sum(const Rows& x, float* dst);
void row_max(const Rows& x, float* dst);
// 1 / sqrt(mean((x - centre)^2) + eps); centre may be null: 0
void row_rstd(const Rows& x, const float* centre, float eps, float* dst);
// dst = (x - centre[row]) rate[row]; centre null: 0, rate null: 1; storage may differ
void normalise_rows(const Rows& x, const float* centre, const float* rate, const Rows& dst);
// dst = e^(x - shift[row]) for x <= shift; f32
void exp_rows(const Rows& x, const float* shift, const Rows& dst);
// dst = x weight[column], dst = x + bias[column]; the vectors are f32
void multiply_columns(const Rows& x, const float* weight, const Rows& dst);
void add_columns(const Rows& x, const float* bias, const Rows& dst);

// --- of attention ---

// A score matrix per (batch, head): query i sees keys [doc_begin, kv_len - q_len + i].
struct ScoreShape {
  std::int64_t heads = 0;
  std::int64_t q_len = 0;
  std::int64_t kv_len = 0;
  const std::int32_t* doc_begin = nullptr;  // [batch * q_len], or null: 0
};
// scores [batch * heads * q_len, kv_len] become softmax(scale * scores) over the visible keys and 0
// elsewhere; lse [batch * heads * q_len] f32 may be null.
void masked_softmax(const ScoreShape& shape, float scale, const Rows& scores, float* lse);
// d_p becomes scale * p (d_p - sum over the row of p d_p)
void softmax_gradient(float scale, const Rows& p, const Rows& d_p);

// [batch * length, heads * dim] to [batch * heads * length, dim] and back; storage may differ.
void split_heads(const Rows& src, std::int64_t length, std::int64_t dim, const Tensor& dst);
void merge_heads(const Tensor& src, std::int64_t length, std::int64_t dim, const Rows& dst);

// --- of the optimizer, all f32 ---

// dst = keep dst + gain x
void blend(float keep, const Tensor& dst, float gain, const Tensor& x);
// dst = keep dst + gain x^2
void blend_square(float keep, const Tensor& dst, float gain, const Tensor& x);
// dst = sqrt(x) scale + eps
void root(const Tensor& x, float scale, float eps, const Tensor& dst);
// dst = keep dst + gain a / b
void blend_quotient(float keep, const Tensor& dst, float gain, const Tensor& a, const Tensor& b);

}  // namespace belay::plain
