// Cases of the matrix product.

#include <fmt/core.h>

#include "belay/device/conformance/cases.h"

namespace belay::conformance {
namespace {

struct MatmulCase {
  DType src;
  DType dst;
  std::int64_t m;
  std::int64_t n;
  std::int64_t k;
  bool transpose_a;
  bool transpose_b;
  bool bias;
  bool accumulate;
  std::int64_t misalignment;
};

std::string name_of_case(const MatmulCase& c) {
  return fmt::format("{}->{} {}x{}x{} {}{}{}{}{}", name_of(c.src), name_of(c.dst), c.m, c.n, c.k,
                     c.transpose_a ? "t" : "n", c.transpose_b ? "t" : "n", c.bias ? " bias" : "",
                     c.accumulate ? " accumulate" : "",
                     c.misalignment != 0 ? fmt::format(" from {}", c.misalignment) : "");
}

std::vector<MatmulCase> matmul_cases() {
  std::vector<MatmulCase> cases;
  struct Types {
    DType src;
    DType dst;
  };
  for (const Types& types : {Types{DType::f32, DType::f32}, Types{DType::bf16, DType::bf16},
                             Types{DType::bf16, DType::f32}, Types{DType::f16, DType::f16},
                             Types{DType::f16, DType::f32}}) {
    for (const bool ta : {false, true}) {
      for (const bool tb : {false, true}) {
        cases.push_back({types.src, types.dst, 1, 1, 1, ta, tb, false, false, 0});
        cases.push_back({types.src, types.dst, 17, 33, 65, ta, tb, true, false, 1});
        cases.push_back({types.src, types.dst, 64, 48, 96, ta, tb, false, true, 0});
        cases.push_back({types.src, types.dst, 5, 129, 31, ta, tb, true, true, 3});
      }
    }
    cases.push_back({types.src, types.dst, 70, 96, 300, false, true, false, false, 0});
  }
  return cases;
}

MatmulArgs build(CaseMemory& memory, const MatmulCase& c) {
  memory.set_misalignment(c.misalignment);
  MatmulArgs args;
  args.transpose_a = c.transpose_a;
  args.transpose_b = c.transpose_b;
  args.accumulate = c.accumulate;
  args.a = memory.input("a", c.src, c.transpose_a ? Shape{c.k, c.m} : Shape{c.m, c.k});
  args.b = memory.input("b", c.src, c.transpose_b ? Shape{c.n, c.k} : Shape{c.k, c.n});
  if (c.bias) args.bias = memory.input("bias", c.src, {c.n});
  args.dst = c.accumulate ? memory.inout("dst", c.dst, {c.m, c.n})
                          : memory.output("dst", c.dst, {c.m, c.n});
  return args;
}

// y = x w^T + bias: d_x = d_y w, d_w += d_y^T x, d_bias += column sums of d_y.
Gradient linear_gradient(CaseMemory& memory) {
  const std::int64_t tokens = 5;
  const std::int64_t in = 7;
  const std::int64_t out = 6;
  const DType f32 = DType::f32;
  MatmulArgs forward;
  forward.a = memory.input("x", f32, {tokens, in});
  forward.b = memory.input("weights", f32, {out, in});
  forward.bias = memory.input("bias", f32, {out});
  forward.dst = memory.output("y", f32, {tokens, out});
  forward.transpose_b = true;
  const Tensor d_y = memory.input("d_y", f32, {tokens, out});
  MatmulArgs d_x;
  d_x.a = d_y;
  d_x.b = forward.b;
  d_x.dst = memory.output("d_x", f32, {tokens, in});
  MatmulArgs d_w;
  d_w.a = d_y;
  d_w.b = forward.a;
  d_w.dst = memory.inout("d_w", f32, {out, in}, constant(0));
  d_w.transpose_a = true;
  d_w.accumulate = true;
  const ColumnSumArgs d_bias{d_y, memory.inout("d_bias", f32, {out}, constant(0))};
  Gradient result;
  result.loss = [=] {
    KernelContext none;
    run_reference(forward, none);
    return dot(forward.dst, d_y);
  };
  result.backward = [=] {
    KernelContext none;
    run_reference(d_x, none);
    run_reference(d_w, none);
    run_reference(d_bias, none);
  };
  result.inputs = {{forward.a, d_x.dst}, {forward.b, d_w.dst}, {forward.bias, d_bias.dst}};
  return result;
}

}  // namespace

std::vector<OpCase<MatmulArgs>> cases_of(OpTag<MatmulArgs>) {
  std::vector<OpCase<MatmulArgs>> cases;
  for (const MatmulCase& c : matmul_cases()) {
    cases.push_back({name_of_case(c), [c](CaseMemory& memory) { return build(memory, c); }});
  }
  return cases;
}

std::vector<GradientCase> matmul_gradients() {
  return {{std::string(MatmulArgs::kName), "linear layer", linear_gradient}};
}

}  // namespace belay::conformance
