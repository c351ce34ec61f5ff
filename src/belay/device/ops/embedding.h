#pragma once
// Token (and learned position) embedding, and its gradient.

#include "belay/base/tensor.h"
#include "belay/device/kernel.h"

namespace belay {

// dst[t,:] = table[tokens[t],:] (+ positions_table[positions[t],:])
struct EmbeddingForwardArgs {
  static constexpr std::string_view kName = "embedding_forward";

  Tensor tokens;           // [tokens] i32, each in [0, vocab)
  Tensor table;            // [vocab, hidden]; f32, bf16 or f16
  Tensor positions;        // [tokens] i32, or empty
  Tensor positions_table;  // [seq_len, hidden] of the dtype of table, or empty
  Tensor dst;              // [tokens, hidden]; f32, bf16 or f16

  [[nodiscard]] Cost cost() const {
    const double rows = positions_table.empty() ? 2.0 : 3.0;
    return {0.0, rows * static_cast<double>(dst.bytes())};
  }
  [[nodiscard]] DType arithmetic() const { return dst.dtype; }
  template <class Visit>
  void each_result(Visit&& visit) const {
    visit("dst", dst);
  }
  void check() const {
    BELAY_CHECK(tokens.elements() == dst.dim(0) && table.dim(1) == dst.dim(1));
    BELAY_CHECK(positions.empty() == positions_table.empty());
  }
};

// d_table[tokens[t],:] += d_dst[t,:]; likewise for positions. Rows that meet are added in rising t.
struct EmbeddingBackwardArgs {
  static constexpr std::string_view kName = "embedding_backward";

  Tensor tokens;             // [tokens] i32
  Tensor positions;          // [tokens] i32, or empty
  Tensor d_dst;              // [tokens, hidden]; f32, bf16 or f16
  Tensor d_table;            // [vocab, hidden] f32, accumulated
  Tensor d_positions_table;  // [seq_len, hidden] f32, accumulated, or empty

  [[nodiscard]] Cost cost() const {
    const double elements = static_cast<double>(d_dst.elements());
    const double tables = d_positions_table.empty() ? 1.0 : 2.0;
    return {tables * elements, static_cast<double>(d_dst.bytes()) + tables * elements * 8.0};
  }
  [[nodiscard]] DType arithmetic() const { return DType::f32; }
  template <class Visit>
  void each_result(Visit&& visit) const {
    visit("d_table", d_table);
    visit("d_positions_table", d_positions_table);
  }
  void check() const {
    BELAY_CHECK(tokens.elements() == d_dst.dim(0) && d_table.dim(1) == d_dst.dim(1));
    BELAY_CHECK(d_table.dtype == DType::f32);
  }
};

}  // namespace belay
