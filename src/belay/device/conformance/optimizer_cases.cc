// Cases of AdamW and of the sum of squares.

#include <fmt/core.h>

#include <cmath>

#include "belay/device/conformance/cases.h"

namespace belay::conformance {
namespace {

struct AdamwCase {
  std::string name;
  std::int64_t count;
  DType copy;  // f32: none
  int step;
  float weight_decay;
  double grad_size;
  double grad_scale;
  std::int64_t misalignment;
};

std::vector<AdamwCase> adamw_cases() {
  const DType f32 = DType::f32;
  const DType bf16 = DType::bf16;
  const DType f16 = DType::f16;
  return {
      {"first step", 1000, f32, 1, 0.1F, 1, 1, 0},
      {"one element", 1, bf16, 3, 0, 1, 1, 0},
      {"with copy", 70000, bf16, 10, 0.1F, 1, 0.25, 0},
      {"odd start", 4097, bf16, 100, 0.01F, 1e-3, 7, 3},
      {"with f16 copy", 70000, f16, 10, 0.1F, 1, 0.25, 0},
      {"odd start, f16 copy", 4097, f16, 100, 0.01F, 1e-3, 7, 3},
      // 100 gradients of 1e20 clipped to norm 1, and scales that are not normal numbers of f32.
      {"clipped from 1e21", 100, f32, 2, 0, 1e20, 1e-21, 1},
      {"scale below f32", 130, f32, 2, 0, 1e38, 1e-42, 0},
      {"scale above f32", 130, f32, 2, 0, 1e-37, 1e39, 0},
  };
}

AdamwArgs build(CaseMemory& memory, const AdamwCase& c) {
  memory.set_misalignment(c.misalignment);
  const Shape shape{c.count};
  AdamwArgs args;
  args.weights = memory.inout("weights", DType::f32, shape);
  args.grad = memory.inout("grad", DType::f32, shape, between(-c.grad_size, c.grad_size));
  args.m = memory.inout("m", DType::f32, shape, between(-0.1, 0.1));
  args.v = memory.inout("v", DType::f32, shape, between(1e-4, 0.1));
  if (c.copy != DType::f32) args.copy = memory.output("copy", c.copy, shape);
  args.lr = 1e-2F;
  args.beta1 = 0.9F;
  args.beta2 = 0.95F;
  args.weight_decay = c.weight_decay;
  args.correction1 = static_cast<float>(1.0 - std::pow(0.9, c.step));
  args.correction2 = static_cast<float>(1.0 - std::pow(0.95, c.step));
  args.grad_scale = c.grad_scale;
  return args;
}

}  // namespace

std::vector<OpCase<AdamwArgs>> cases_of(OpTag<AdamwArgs>) {
  std::vector<OpCase<AdamwArgs>> cases;
  for (const AdamwCase& c : adamw_cases()) {
    cases.push_back({c.name, [c](CaseMemory& memory) { return build(memory, c); }});
  }
  return cases;
}

std::vector<OpCase<SumOfSquaresArgs>> cases_of(OpTag<SumOfSquaresArgs>) {
  struct Case {
    std::string name;
    std::int64_t count;
    Values values;
    std::int64_t misalignment;
    std::int64_t piece = 0;
  };
  std::vector<OpCase<SumOfSquaresArgs>> cases;
  for (const Case& c : std::vector<Case>{
           {"one", 1, between(1, 2), 0},
           {"odd", 1003, between(-1, 1), 1},
           {"several pieces", 100001, between(-1, 1), 3},
           {"1e20 each", 100, constant(1e20), 0},
           {"largest f32", 64, constant(3.4e38), 0},
           {"an infinity", 100, listed({1, 2, 3, INFINITY}), 0},
           {"a NaN", 65, listed({1, 2, 3, NAN, 4}), 0},
           {"small pieces", 1003, between(-1, 1), 1, 32},
           {"large pieces", 200003, between(-1, 1), 0, 65536},
           {"a NaN in one of the pieces", 65, listed({1, 2, 3, NAN, 4}), 0, 32},
       }) {
    cases.push_back({c.name, [c](CaseMemory& memory) {
                       memory.set_misalignment(c.misalignment);
                       SumOfSquaresArgs args;
                       args.src = memory.input("src", DType::f32, {c.count}, c.values);
                       args.piece = c.piece;
                       args.dst = memory.output("dst", DType::f64, {args.pieces()});
                       return args;
                     }});
  }
  return cases;
}

}  // namespace belay::conformance
