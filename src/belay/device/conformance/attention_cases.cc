// Cases of attention and of the rotary embedding.

#include <fmt/core.h>

#include <cmath>

#include "belay/device/conformance/cases.h"

namespace belay::conformance {
namespace {

struct AttentionCase {
  DType dtype;
  std::int64_t batch;
  std::int64_t q_len;
  std::int64_t kv_len;
  std::int64_t heads;
  std::int64_t kv_heads;
  std::int64_t head_dim;
  bool documents;
  std::int64_t misalignment;
  std::int64_t block_tokens = 0;  // above 0: keys in blocks, batch rows of different lengths
};

std::string name_of_case(const AttentionCase& c) {
  return fmt::format("{} batch {} {} of {} heads {}/{} dim {}{}{}{}", name_of(c.dtype), c.batch,
                     c.q_len, c.kv_len, c.heads, c.kv_heads, c.head_dim,
                     c.documents ? " documents" : "",
                     c.block_tokens != 0 ? fmt::format(" blocks of {}", c.block_tokens) : "",
                     c.misalignment != 0 ? fmt::format(" from {}", c.misalignment) : "");
}

// Self-attention cases; those of forward alone follow in forward_only().
std::vector<AttentionCase> attention_cases() {
  std::vector<AttentionCase> cases;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    cases.push_back({dtype, 1, 1, 1, 1, 1, 4, false, 0});
    cases.push_back({dtype, 2, 17, 17, 2, 2, 16, false, 1});
    cases.push_back({dtype, 1, 65, 65, 4, 2, 32, true, 0});
    cases.push_back({dtype, 2, 70, 70, 3, 1, 24, true, 3});
    cases.push_back({dtype, 1, 129, 129, 2, 2, 64, false, 0});
  }
  return cases;
}

std::vector<AttentionCase> forward_only() {
  std::vector<AttentionCase> cases;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    cases.push_back({dtype, 2, 1, 33, 4, 2, 16, false, 0});
    cases.push_back({dtype, 1, 5, 50, 2, 1, 64, true, 1});
    cases.push_back({dtype, 3, 1, 70, 4, 2, 24, false, 1, 16});
    cases.push_back({dtype, 2, 9, 75, 2, 1, 32, true, 0, 7});
    cases.push_back({dtype, 2, 70, 131, 3, 3, 40, false, 3, 16});
  }
  return cases;
}

AttentionShape shape_of(const AttentionCase& c) {
  return {c.batch,
          c.q_len,
          c.kv_len,
          c.heads,
          c.kv_heads,
          c.head_dim,
          static_cast<float>(1.0 / std::sqrt(static_cast<double>(c.head_dim)))};
}

// With blocks, every batch row after the first has 3 keys less than the one before.
std::int64_t keys_of_row(const AttentionCase& c, std::int64_t batch) {
  return c.block_tokens == 0 ? c.kv_len : std::max(c.q_len, c.kv_len - 3 * batch);
}

// Documents of 13 tokens: the first visible key of each query.
Values document_starts(const AttentionCase& c) {
  return [c](std::int64_t i, double) {
    const std::int64_t position = keys_of_row(c, i / c.q_len) - c.q_len + i % c.q_len;
    return static_cast<double>(position / 13 * 13);
  };
}

constexpr std::int64_t kSpareBlocks = 2;  // of the pool, used by nobody

std::int64_t blocks_of_row(const AttentionCase& c) {
  return (c.kv_len + c.block_tokens - 1) / c.block_tokens;
}

// Blocks are dealt to the batch rows in turn, from the last of the pool on.
void add_blocks(CaseMemory& memory, const AttentionCase& c, AttentionForwardArgs& args) {
  const std::int64_t width = blocks_of_row(c);
  const std::int64_t last = c.batch * width + kSpareBlocks - 1;
  args.block_tokens = c.block_tokens;
  args.block_table = memory.input(
      "block_table", DType::i32, {c.batch, width}, [=, batch = c.batch](std::int64_t i, double) {
        return static_cast<double>(last - i % width * batch - i / width);
      });
  args.kv_lengths = memory.input("kv_lengths", DType::i32, {c.batch}, [c](std::int64_t i, double) {
    return static_cast<double>(keys_of_row(c, i));
  });
}

struct Operands {
  Tensor qkv;  // one fused buffer when q_len == kv_len
  Rows q;
  Rows k;
  Rows v;
};

Operands operands(CaseMemory& memory, const AttentionCase& c, bool written,
                  std::string_view prefix) {
  const std::int64_t q_width = c.heads * c.head_dim;
  const std::int64_t kv_width = c.kv_heads * c.head_dim;
  const auto add = [&](std::string_view name, const Shape& shape) {
    const std::string full = std::string(prefix) + std::string(name);
    return written ? memory.output(full, c.dtype, shape) : memory.input(full, c.dtype, shape);
  };
  if (c.q_len == c.kv_len) {
    const Tensor qkv = add("qkv", {c.batch * c.q_len, q_width + 2 * kv_width});
    return {qkv, columns(qkv, 0, q_width), columns(qkv, q_width, q_width + kv_width),
            columns(qkv, q_width + kv_width, q_width + 2 * kv_width)};
  }
  const std::int64_t kv_rows = c.block_tokens == 0
                                   ? c.batch * c.kv_len
                                   : (c.batch * blocks_of_row(c) + kSpareBlocks) * c.block_tokens;
  const Tensor q = add("q", {c.batch * c.q_len, q_width});
  const Tensor k = add("k", {kv_rows, kv_width});
  const Tensor v = add("v", {kv_rows, kv_width});
  return {{}, columns(q, 0, q_width), columns(k, 0, kv_width), columns(v, 0, kv_width)};
}

AttentionForwardArgs forward(CaseMemory& memory, const AttentionCase& c) {
  memory.set_misalignment(c.misalignment);
  const Operands in = operands(memory, c, false, "");
  AttentionForwardArgs args;
  args.shape = shape_of(c);
  args.q = in.q;
  args.k = in.k;
  args.v = in.v;
  if (c.documents) {
    args.doc_begin = memory.input("doc_begin", DType::i32, {c.batch * c.q_len}, document_starts(c));
  }
  if (c.block_tokens != 0) add_blocks(memory, c, args);
  args.dst = memory.output("dst", c.dtype, {c.batch * c.q_len, c.heads * c.head_dim});
  args.lse = memory.output("lse", DType::f32, {c.batch, c.heads, c.q_len});
  return args;
}

AttentionBackwardArgs backward(CaseMemory& memory, const AttentionCase& c) {
  memory.set_misalignment(c.misalignment);
  const Operands in = operands(memory, c, false, "");
  AttentionBackwardArgs args;
  args.shape = shape_of(c);
  args.q = in.q;
  args.k = in.k;
  args.v = in.v;
  if (c.documents) {
    args.doc_begin = memory.input("doc_begin", DType::i32, {c.batch * c.q_len}, document_starts(c));
  }
  const Shape rows{c.batch * c.q_len, c.heads * c.head_dim};
  args.dst = memory.input("dst", c.dtype, rows);
  args.lse = memory.input("lse", DType::f32, {c.batch, c.heads, c.q_len});
  memory.derive(
      AttentionForwardArgs{args.shape, args.q, args.k, args.v, args.doc_begin, args.dst, args.lse});
  args.d_dst = memory.input("d_dst", c.dtype, rows);
  const Operands out = operands(memory, c, true, "d_");
  args.d_q = out.q;
  args.d_k = out.k;
  args.d_v = out.v;
  return args;
}

Gradient gradient(CaseMemory& memory, const AttentionCase& c) {
  const AttentionForwardArgs args = forward(memory, c);
  const Operands in{memory.tensor(0), args.q, args.k, args.v};
  AttentionBackwardArgs back;
  back.shape = args.shape;
  back.q = args.q;
  back.k = args.k;
  back.v = args.v;
  back.doc_begin = args.doc_begin;
  back.dst = args.dst;
  back.lse = args.lse;
  back.d_dst = memory.input("cotangent", DType::f32, args.dst.shape);
  const Operands out = operands(memory, c, true, "d_");
  back.d_q = out.q;
  back.d_k = out.k;
  back.d_v = out.v;
  Gradient result;
  result.loss = [=] {
    KernelContext none;
    run_reference(args, none);
    return dot(args.dst, back.d_dst);
  };
  result.backward = [=] {
    KernelContext none;
    run_reference(back, none);
  };
  result.inputs = {{in.qkv, out.qkv}};
  return result;
}

struct RotaryCase {
  DType dtype;
  std::int64_t tokens;
  std::int64_t heads;
  std::int64_t head_dim;
  std::int64_t seq;
  bool backward;
  std::int64_t misalignment;
};

RotaryArgs build_rotary(CaseMemory& memory, const RotaryCase& c) {
  memory.set_misalignment(c.misalignment);
  const std::int64_t half = c.head_dim / 2;
  const std::int64_t width = c.heads * c.head_dim;
  RotaryArgs args;
  // The rows to rotate are the first columns of a wider buffer; the rest must stay.
  args.rows = columns(memory.inout("buffer", c.dtype, {c.tokens, width + 5}), 0, width);
  args.head_dim = c.head_dim;
  args.positions = memory.input("positions", DType::i32, {c.tokens}, integers(0, c.seq));
  args.table = memory.input("table", DType::f32, {c.seq, c.head_dim}, [=](std::int64_t i, double) {
    const std::int64_t d = i % c.head_dim;
    const double angle =
        static_cast<double>(i / c.head_dim) *
        std::pow(10000.0, -static_cast<double>(d % half) / static_cast<double>(half));
    return d < half ? std::cos(angle) : std::sin(angle);
  });
  args.backward = c.backward;
  return args;
}

// Rotation is linear: the gradient of dot(rotate(x), w) is the backward rotation of w.
Gradient rotary_gradient(CaseMemory& memory) {
  const RotaryCase c{DType::f32, 4, 2, 6, 9, false, 0};
  const RotaryArgs rotate = build_rotary(memory, c);
  const Shape shape{c.tokens, c.heads * c.head_dim + 5};
  const Tensor buffer = memory.tensor(0);
  const Tensor x = memory.input("x", DType::f32, shape);
  const Tensor cotangent = memory.input("cotangent", DType::f32, shape);
  const Tensor d_x = memory.inout("d_x", DType::f32, shape, constant(0));
  RotaryArgs back = rotate;
  back.rows = columns(d_x, 0, c.heads * c.head_dim);
  back.backward = true;
  Gradient result;
  result.loss = [=] {
    KernelContext none;
    run_reference(CastArgs{x, buffer}, none);
    run_reference(rotate, none);
    return dot(buffer, cotangent);
  };
  result.backward = [=] {
    KernelContext none;
    run_reference(CastArgs{cotangent, d_x}, none);
    run_reference(back, none);
  };
  result.inputs = {{x, d_x}};
  return result;
}

// The bf16 kernels may keep probabilities in bf16 between their two products. A query that sees one
// key has gradients that cancel to 0.
constexpr Tolerance kAttention{.f64 = 1e-12, .f32 = 2e-6, .bf16 = 8e-3, .f16 = 1e-3, .zero = 1e-6};

// With scores in the storage type.
constexpr Tolerance kUnprotected{
    .f64 = 1e-12, .f32 = 5e-3, .bf16 = 2e-2, .f16 = 2e-3, .zero = 1e-2};

}  // namespace

std::vector<OpCase<AttentionForwardArgs>> cases_of(OpTag<AttentionForwardArgs>) {
  std::vector<OpCase<AttentionForwardArgs>> cases;
  auto list = attention_cases();
  for (const AttentionCase& c : forward_only()) list.push_back(c);
  for (const AttentionCase& c : list) {
    cases.push_back(
        {name_of_case(c), [c](CaseMemory& memory) { return forward(memory, c); }, kAttention});
    if (c.dtype == DType::f32 || c.heads != 2) continue;
    cases.push_back({name_of_case(c) + " unprotected",
                     [c](CaseMemory& memory) {
                       AttentionForwardArgs args = forward(memory, c);
                       args.inside = Inside::stored;
                       return args;
                     },
                     kUnprotected});
  }
  return cases;
}

std::vector<OpCase<AttentionBackwardArgs>> cases_of(OpTag<AttentionBackwardArgs>) {
  std::vector<OpCase<AttentionBackwardArgs>> cases;
  for (const AttentionCase& c : attention_cases()) {
    cases.push_back(
        {name_of_case(c), [c](CaseMemory& memory) { return backward(memory, c); }, kAttention});
    if (c.dtype == DType::f32 || c.heads != 2) continue;
    cases.push_back({name_of_case(c) + " unprotected",
                     [c](CaseMemory& memory) {
                       AttentionBackwardArgs args = backward(memory, c);
                       args.inside = Inside::stored;
                       return args;
                     },
                     kUnprotected});
  }
  return cases;
}

std::vector<OpCase<RotaryArgs>> cases_of(OpTag<RotaryArgs>) {
  std::vector<OpCase<RotaryArgs>> cases;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const bool back : {false, true}) {
      for (const RotaryCase& c :
           {RotaryCase{dtype, 1, 1, 2, 1, back, 0}, RotaryCase{dtype, 9, 3, 24, 40, back, 1},
            RotaryCase{dtype, 33, 2, 64, 100, back, 0},
            RotaryCase{dtype, 20, 4, 128, 50, back, 3}}) {
        cases.push_back(
            {fmt::format("{} {} tokens {}x{}{}{}", name_of(dtype), c.tokens, c.heads, c.head_dim,
                         back ? " backward" : "",
                         c.misalignment != 0 ? fmt::format(" from {}", c.misalignment) : ""),
             [c](CaseMemory& memory) { return build_rotary(memory, c); }});
      }
    }
  }
  return cases;
}

std::vector<OpCase<ScatterRowsArgs>> cases_of(OpTag<ScatterRowsArgs>) {
  std::vector<OpCase<ScatterRowsArgs>> cases;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const std::int64_t rows : {1, 3, 70}) {
      cases.push_back({fmt::format("{} {} rows", name_of(dtype), rows), [=](CaseMemory& memory) {
                         memory.set_misalignment(1);
                         const Tensor src = memory.input("src", dtype, {rows, 21});
                         const Tensor dst = memory.inout("dst", dtype, {2 * rows + 1, 24});
                         ScatterRowsArgs args;
                         args.src = columns(src, 4, 21);
                         args.dst = columns(dst, 2, 19);
                         args.index =
                             memory.input("index", DType::i32, {rows}, [=](std::int64_t i, double) {
                               return static_cast<double>(2 * (rows - i) - i % 2);
                             });
                         return args;
                       }});
    }
  }
  return cases;
}

std::vector<GradientCase> attention_gradients() {
  std::vector<GradientCase> cases;
  for (const bool documents : {false, true}) {
    const AttentionCase c{DType::f32, 2, 15, 15, 4, 2, 4, documents, 0};
    cases.push_back({std::string(AttentionBackwardArgs::kName), name_of_case(c),
                     [c](CaseMemory& memory) { return gradient(memory, c); }});
  }
  cases.push_back({std::string(RotaryArgs::kName), "rotation", rotary_gradient});
  return cases;
}

}  // namespace belay::conformance
