// Attention and rotary kernels of the cpu and reference devices against PyTorch's values.

#include <gtest/gtest.h>

#include <string>

#include "belay/device/golden_operands.h"

namespace belay {
namespace {

// Attention may round probabilities and their gradients to bf16 before it multiplies with them;
// each such rounding adds up to 2^-9 in the norm, and its error in a cancelling sum is relative to
// the largest term.
constexpr Tolerance kBf16AttentionTolerance{0x1p-7, 0x1p-6};

// f16 kernels keep probabilities in f32 and round results only, but the backward pass reads the
// rounded result of the forward pass.
constexpr Tolerance kF16AttentionTolerance{0x1p-10, 0x1p-9};

Tolerance attention_tolerance(DType dtype) {
  if (dtype == DType::bf16) return kBf16AttentionTolerance;
  return dtype == DType::f16 ? kF16AttentionTolerance : kF32Tolerance;
}

AttentionShape attention_shape(const Operands& operands) {
  const std::vector<double> sizes = operands.values("shape");
  const auto size = [&](std::size_t i) { return static_cast<std::int64_t>(sizes[i]); };
  return {size(0), size(1), size(2), size(3), size(4), size(5), operands.number("scale")};
}

// q, k and v as the engine lays them out: columns of one fused buffer when they have as many rows.
struct Qkv {
  Rows q, k, v;
};

Qkv fuse(Operands& operands, const AttentionShape& shape, DType dtype, const Tensor* q,
         const Tensor* k, const Tensor* v) {
  const std::int64_t q_width = shape.heads * shape.head_dim;
  const std::int64_t kv_width = shape.kv_heads * shape.head_dim;
  const bool fused = shape.q_len == shape.kv_len;
  const std::int64_t kv_rows = shape.batch * shape.kv_len;
  const Tensor all = operands.output(dtype, {kv_rows, q_width + 2 * kv_width});
  Qkv result{columns(all, 0, q_width), columns(all, q_width, q_width + kv_width),
             columns(all, q_width + kv_width, q_width + 2 * kv_width)};
  if (!fused) {
    result.q = columns(operands.output(dtype, {shape.batch * shape.q_len, q_width}), 0, q_width);
  }
  const auto fill = [](const Rows& rows, const Tensor* from) {
    if (from == nullptr) return;
    for (std::int64_t row = 0; row < rows.rows; ++row) {
      for (std::int64_t column = 0; column < rows.width; ++column) {
        store(rows, row, column, load(*from, row * rows.width + column));
      }
    }
  };
  fill(result.q, q);
  fill(result.k, k);
  fill(result.v, v);
  return result;
}

Qkv attention_inputs(Operands& operands, const AttentionShape& shape) {
  const Tensor q = operands.input("q");
  const Tensor k = operands.input("k");
  const Tensor v = operands.input("v");
  return fuse(operands, shape, q.dtype, &q, &k, &v);
}

std::vector<double> to_doubles(const Rows& rows) {
  std::vector<double> result;
  for (std::int64_t row = 0; row < rows.rows; ++row) {
    for (std::int64_t column = 0; column < rows.width; ++column) {
      result.push_back(load(rows, row, column));
    }
  }
  return result;
}

TEST(GoldenTest, AttentionForward) {
  const GoldenFile file("ops/attention.safetensors");
  each_kernel<AttentionForwardArgs>(file, [](Operands& operands, auto&& run) {
    AttentionForwardArgs args;
    args.shape = attention_shape(operands);
    const Qkv qkv = attention_inputs(operands, args.shape);
    args.q = qkv.q;
    args.k = qkv.k;
    args.v = qkv.v;
    args.doc_begin = operands.optional("doc_begin");
    args.dst = operands.output_like(args.q.dtype, "dst");
    args.lse = operands.output_like(DType::f32, "lse");
    if (!run(args)) return;
    operands.expect(args.dst, "dst", attention_tolerance(args.q.dtype));
    operands.expect(args.lse, "lse", tolerance_of(args.q.dtype));
  });
}

TEST(GoldenTest, AttentionBackward) {
  const GoldenFile file("ops/attention.safetensors");
  for (const std::string& name : file.cases()) {
    if (!file.has(name + "/d_q")) continue;  // the inference shapes have no gradient
    each_kernel_of_case<AttentionBackwardArgs>(file, name, [](Operands& operands, auto&& run) {
      AttentionBackwardArgs args;
      args.shape = attention_shape(operands);
      const Qkv qkv = attention_inputs(operands, args.shape);
      args.q = qkv.q;
      args.k = qkv.k;
      args.v = qkv.v;
      args.doc_begin = operands.optional("doc_begin");
      args.d_dst = operands.input("d_dst");
      args.dst = operands.output_like(args.q.dtype, "dst");
      const std::vector<double> dst = operands.values("dst");
      for (std::size_t i = 0; i < dst.size(); ++i) {
        store(args.dst, static_cast<std::int64_t>(i), dst[i]);
      }
      args.lse = operands.input("lse");
      const Qkv grads = fuse(operands, args.shape, args.q.dtype, nullptr, nullptr, nullptr);
      args.d_q = grads.q;
      args.d_k = grads.k;
      args.d_v = grads.v;
      if (!run(args)) return;
      const Tolerance tolerance = attention_tolerance(args.q.dtype);
      expect_close(to_doubles(args.d_q), operands.values("d_q"), tolerance, "d_q");
      expect_close(to_doubles(args.d_k), operands.values("d_k"), tolerance, "d_k");
      expect_close(to_doubles(args.d_v), operands.values("d_v"), tolerance, "d_v");
    });
  }
}

TEST(GoldenTest, Rotary) {
  const GoldenFile file("ops/rotary.safetensors");
  for (const bool backward : {false, true}) {
    each_kernel<RotaryArgs>(file, [&](Operands& operands, auto&& run) {
      const Tensor rows = operands.input("rows");
      RotaryArgs args;
      args.rows = columns(rows, 0, rows.dim(1));
      args.positions = operands.input("positions");
      args.table = operands.input("table");
      args.head_dim = args.table.dim(1);
      args.backward = backward;
      if (run(args)) operands.expect(rows, backward ? "dst_backward" : "dst");
    });
  }
}

}  // namespace
}  // namespace belay
