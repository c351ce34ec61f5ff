#pragma once
// Causal attention, exact, without the seq x seq matrix (Dao et al., arXiv:2205.14135; grouped
// queries: Ainslie et al., arXiv:2305.13245). Query i of a row sits at key position
// kv_len - q_len + i and sees keys [doc_begin, that position]: documents packed into one row do not
// see each other.

#include "belay/base/tensor.h"
#include "belay/device/kernel.h"
#include "belay/device/ops/inside.h"

namespace belay {

struct AttentionShape {
  std::int64_t batch = 0;
  std::int64_t q_len = 0;
  std::int64_t kv_len = 0;  // >= q_len
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;  // divides heads
  std::int64_t head_dim = 0;
  float scale = 1.0F;  // usually 1/sqrt(head_dim)

  // Visible (query, key) pairs of one head, documents ignored.
  [[nodiscard]] double pairs() const {
    const auto q = static_cast<double>(q_len);
    return static_cast<double>(batch) * q * (static_cast<double>(kv_len) - (q - 1.0) / 2.0);
  }
};

struct AttentionForwardArgs {
  static constexpr std::string_view kName = "attention_forward";

  AttentionShape shape;
  Rows q;            // batch*q_len rows of heads*head_dim; f32, bf16 or f16
  Rows k;            // batch*kv_len rows of kv_heads*head_dim, or the pool of block_table
  Rows v;            // like k
  Tensor doc_begin;  // [batch*q_len] i32: first visible key within the row; empty: 0
  Tensor dst;        // [batch*q_len, heads*head_dim]
  Tensor lse;        // [batch, heads, q_len] f32: log-sum-exp of the scaled scores; may be empty
  Inside inside = Inside::full;  // the products q k^T
  // With a table, keys and values lie in blocks of block_tokens rows, in any order, of a pool that
  // others may use too: key j of batch row b is row
  // block_table[b][j / block_tokens] * block_tokens + j % block_tokens of k, its value that of v.
  Tensor block_table{};  // [batch, at least kv_len / block_tokens rounded up] i32; or empty
  std::int64_t block_tokens = 0;  // of the table; above 0
  Tensor kv_lengths{};  // [batch] i32: keys of each batch row, in [q_len, kv_len], queries at their
                        // end; empty: kv_len each

  [[nodiscard]] Cost cost() const {
    const double work = shape.pairs() * static_cast<double>(shape.heads * shape.head_dim);
    const double kv = 2.0 * static_cast<double>(shape.batch * shape.kv_len * k.width);
    return {4.0 * work, (2.0 * static_cast<double>(dst.elements()) + kv) *
                            static_cast<double>(size_of(q.dtype))};
  }
  [[nodiscard]] DType arithmetic() const { return q.dtype; }
  template <class Visit>
  void each_result(Visit&& visit) const {
    visit("dst", dst);
    visit("lse", lse);
  }
  void check() const {
    BELAY_CHECK(q.rows == shape.batch * shape.q_len && v.rows == k.rows);
    if (block_table.empty()) {
      BELAY_CHECK(k.rows == shape.batch * shape.kv_len);
    } else {
      BELAY_CHECK(block_tokens > 0 && block_table.dim(0) == shape.batch);
      BELAY_CHECK(block_table.dim(1) * block_tokens >= shape.kv_len);
      BELAY_CHECK(block_table.dtype == DType::i32);
    }
    BELAY_CHECK(kv_lengths.empty() || kv_lengths.elements() == shape.batch);
    BELAY_CHECK(q.width == shape.heads * shape.head_dim);
    BELAY_CHECK(k.width == shape.kv_heads * shape.head_dim && v.width == k.width);
    BELAY_CHECK(shape.heads % shape.kv_heads == 0 && shape.kv_len >= shape.q_len);
  }
};

// Needs q_len == kv_len. Overwrites d_q, d_k, d_v.
struct AttentionBackwardArgs {
  static constexpr std::string_view kName = "attention_backward";

  AttentionShape shape;
  Rows q;
  Rows k;
  Rows v;
  Tensor doc_begin;
  Tensor dst;                    // forward's result
  Tensor lse;                    // forward's log-sum-exp
  Tensor d_dst;                  // like dst
  Rows d_q;                      // like q
  Rows d_k;                      // like k
  Rows d_v;                      // like v
  Inside inside = Inside::full;  // as in the forward pass

  [[nodiscard]] Cost cost() const {
    const double work = shape.pairs() * static_cast<double>(shape.heads * shape.head_dim);
    const double kv = 4.0 * static_cast<double>(k.rows * k.width);
    return {8.0 * work, (4.0 * static_cast<double>(dst.elements()) + kv) *
                            static_cast<double>(size_of(q.dtype))};
  }
  [[nodiscard]] DType arithmetic() const { return q.dtype; }
  template <class Visit>
  void each_result(Visit&& visit) const {
    visit("d_q", d_q);
    visit("d_k", d_k);
    visit("d_v", d_v);
  }
  void check() const {
    BELAY_CHECK(shape.q_len == shape.kv_len && !lse.empty());
    BELAY_CHECK(d_q.width == q.width && d_k.width == k.width && d_v.width == v.width);
  }
};

// Row index[i] of dst becomes row i of src: new keys and values go to their places in a cache.
struct ScatterRowsArgs {
  static constexpr std::string_view kName = "scatter_rows";

  Rows src;      // f32, bf16 or f16
  Rows dst;      // like src in dtype and width
  Tensor index;  // [src.rows] i32, rows of dst, none of them twice

  [[nodiscard]] Cost cost() const {
    return {0.0, 2.0 * static_cast<double>(src.rows * src.width) *
                     static_cast<double>(size_of(src.dtype))};
  }
  [[nodiscard]] DType arithmetic() const { return src.dtype; }
  // What it has written has the values of src; the rest of dst may be large and is not its doing.
  template <class Visit>
  void each_result(Visit&& visit) const {
    visit("dst", src);
  }
  void check() const {
    BELAY_CHECK(src.dtype == dst.dtype && src.width == dst.width);
    BELAY_CHECK(index.elements() == src.rows && index.dtype == DType::i32);
  }
};

// Rotates q and k in place (Su et al., arXiv:2104.09864, eq. 34, in the half-split layout of
// Hugging Face): (x1, x2) -> (x1 cos - x2 sin, x2 cos + x1 sin), x1 = first half of the head.
// `backward` applies the transpose, which is the gradient.
struct RotaryArgs {
  static constexpr std::string_view kName = "rotary";

  Rows rows;  // tokens rows of heads*head_dim, in place; f32, bf16 or f16
  std::int64_t head_dim = 0;
  Tensor positions;  // [tokens] i32
  Tensor table;      // [max_position, head_dim] f32: head_dim/2 cosines, then head_dim/2 sines
  bool backward = false;

  [[nodiscard]] Cost cost() const {
    const double elements = static_cast<double>(rows.rows * rows.width);
    return {3.0 * elements, 2.0 * elements * static_cast<double>(size_of(rows.dtype))};
  }
  [[nodiscard]] DType arithmetic() const { return rows.dtype; }
  template <class Visit>
  void each_result(Visit&& visit) const {
    visit("rows", rows);
  }
  void check() const {
    BELAY_CHECK(positions.elements() == rows.rows && rows.width % head_dim == 0);
    BELAY_CHECK(head_dim % 2 == 0 && table.dim(1) == head_dim);
  }
};

}  // namespace belay
