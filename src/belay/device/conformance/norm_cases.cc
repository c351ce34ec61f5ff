// Cases of the normalisations.

#include <fmt/core.h>

#include "belay/device/conformance/cases.h"

namespace belay::conformance {
namespace {

struct NormCase {
  NormKind kind;
  DType dtype;
  std::int64_t tokens;
  std::int64_t hidden;
  bool residual;
  bool bias;
  bool in_place;  // forward: sum = residual; backward: d_src = d_dst
  std::int64_t misalignment;
};

std::string name_of_case(const NormCase& c) {
  return fmt::format("{} {} {}x{}{}{}{}{}", c.kind == NormKind::layer ? "layer" : "rms",
                     name_of(c.dtype), c.tokens, c.hidden, c.residual ? " residual" : "",
                     c.bias ? " bias" : "", c.in_place ? " in place" : "",
                     c.misalignment != 0 ? fmt::format(" from {}", c.misalignment) : "");
}

std::vector<NormCase> norm_cases() {
  std::vector<NormCase> cases;
  for (const NormKind kind : {NormKind::layer, NormKind::rms}) {
    const bool bias = kind == NormKind::layer;
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      // (The RMS norm of one element has a gradient of eps alone, left over from a cancellation.)
      cases.push_back({kind, dtype, 1, bias ? 1 : 5, false, bias, false, 0});
      cases.push_back({kind, dtype, 5, 33, false, false, false, 1});
      cases.push_back({kind, dtype, 3, 64, true, bias, false, 0});
      cases.push_back({kind, dtype, 70, 48, true, false, true, 0});
      cases.push_back({kind, dtype, 37, 127, true, bias, true, 3});
      cases.push_back({kind, dtype, 66, 96, true, bias, false, 0});
      cases.push_back({kind, dtype, 2, 1027, false, bias, true, 5});
    }
  }
  return cases;
}

// A mean far from 0, which a one-pass variance would not survive; multiples of 1/32, so that the
// sum with the residual is exact in bf16 and the statistics can be held to the f32 tolerance.
Values rows_with_offset() {
  return multiples(1.0 / 32, 2, 4);
}
Values small_residual() {
  return multiples(1.0 / 32, -0.5, 0.5);
}

NormForwardArgs forward(CaseMemory& memory, const NormCase& c) {
  memory.set_misalignment(c.misalignment);
  const Shape rows{c.tokens, c.hidden};
  NormForwardArgs args;
  args.kind = c.kind;
  args.src = memory.input("src", c.dtype, rows, rows_with_offset());
  if (c.residual) {
    args.residual = memory.input("residual", c.dtype, rows, small_residual());
    if (c.in_place) {
      memory.mark_written(args.residual);
      args.sum = args.residual;
    } else {
      args.sum = memory.output("sum", c.dtype, rows);
    }
  }
  args.weight = memory.input("weight", DType::f32, {c.hidden}, between(0.5, 1.5));
  if (c.bias) args.bias = memory.input("bias", DType::f32, {c.hidden});
  args.dst = memory.output("dst", c.dtype, rows);
  if (c.kind == NormKind::layer) args.mean = memory.output("mean", DType::f32, {c.tokens});
  args.rstd = memory.output("rstd", DType::f32, {c.tokens});
  return args;
}

NormBackwardArgs backward(CaseMemory& memory, const NormCase& c) {
  memory.set_misalignment(c.misalignment);
  const Shape rows{c.tokens, c.hidden};
  NormBackwardArgs args;
  args.kind = c.kind;
  args.src = memory.input("src", c.dtype, rows, between(-1, 2));
  args.weight = memory.input("weight", DType::f32, {c.hidden}, between(0.5, 1.5));
  if (c.kind == NormKind::layer) args.mean = memory.input("mean", DType::f32, {c.tokens});
  args.rstd = memory.input("rstd", DType::f32, {c.tokens});
  args.d_dst = memory.input("d_dst", c.dtype, rows);
  const NormForwardArgs before{.kind = c.kind,
                               .src = args.src,
                               .residual = {},
                               .weight = args.weight,
                               .bias = {},
                               .sum = {},
                               .dst = memory.input("normalised", c.dtype, rows),
                               .mean = args.mean,
                               .rstd = args.rstd};
  memory.derive(before);
  if (c.residual) args.d_residual = memory.input("d_residual", c.dtype, rows);
  if (c.in_place) {
    args.d_src = c.residual ? args.d_residual : args.d_dst;
    memory.mark_written(args.d_src);
  } else {
    args.d_src = memory.output("d_src", c.dtype, rows);
  }
  args.d_weight = memory.inout("d_weight", DType::f32, {c.hidden});
  if (c.bias) args.d_bias = memory.inout("d_bias", DType::f32, {c.hidden});
  return args;
}

Gradient gradient(CaseMemory& memory, const NormCase& c) {
  const NormForwardArgs args = forward(memory, c);
  const Tensor cotangent = memory.input("cotangent", DType::f32, args.src.shape);
  const Tensor sum_cotangent = memory.input("sum cotangent", DType::f32, args.src.shape);
  NormBackwardArgs back;
  back.kind = c.kind;
  back.src = args.sum.empty() ? args.src : args.sum;
  back.weight = args.weight;
  back.mean = args.mean;
  back.rstd = args.rstd;
  back.d_dst = cotangent;
  if (c.residual) back.d_residual = sum_cotangent;
  back.d_src = memory.output("d_src", DType::f32, args.src.shape);
  back.d_weight = memory.inout("d_weight", DType::f32, {c.hidden}, constant(0));
  if (c.bias) back.d_bias = memory.inout("d_bias", DType::f32, {c.hidden}, constant(0));
  Gradient result;
  result.loss = [=] {
    KernelContext none;
    run_reference(args, none);
    return dot(args.dst, cotangent) + (c.residual ? dot(args.sum, sum_cotangent) : 0.0);
  };
  result.backward = [=] {
    KernelContext none;
    run_reference(back, none);
  };
  result.inputs = {{args.src, back.d_src}, {args.weight, back.d_weight}};
  if (c.residual) result.inputs.emplace_back(args.residual, back.d_src);
  if (c.bias) result.inputs.emplace_back(args.bias, back.d_bias);
  return result;
}

}  // namespace

std::vector<OpCase<NormForwardArgs>> cases_of(OpTag<NormForwardArgs>) {
  std::vector<OpCase<NormForwardArgs>> cases;
  for (const NormCase& c : norm_cases()) {
    cases.push_back({name_of_case(c), [c](CaseMemory& memory) { return forward(memory, c); }});
    if (c.dtype == DType::f32 || c.residual) continue;
    // The mean is several times the deviation, and so is its rounding.
    const Tolerance rounded{.f32 = c.dtype == DType::bf16 ? 8e-3 : 1e-3, .bf16 = 4e-2, .f16 = 5e-3};
    cases.push_back({name_of_case(c) + " unprotected",
                     [c](CaseMemory& memory) {
                       NormForwardArgs args = forward(memory, c);
                       args.inside = Inside::stored;
                       return args;
                     },
                     rounded});
  }
  return cases;
}

std::vector<OpCase<NormBackwardArgs>> cases_of(OpTag<NormBackwardArgs>) {
  std::vector<OpCase<NormBackwardArgs>> cases;
  for (const NormCase& c : norm_cases()) {
    cases.push_back({name_of_case(c), [c](CaseMemory& memory) { return backward(memory, c); }});
  }
  return cases;
}

std::vector<GradientCase> norm_gradients() {
  std::vector<GradientCase> cases;
  for (const NormKind kind : {NormKind::layer, NormKind::rms}) {
    for (const bool extras : {false, true}) {
      const NormCase c{kind,  DType::f32, 3, 10, extras, extras && kind == NormKind::layer,
                       false, 0};
      cases.push_back({std::string(NormBackwardArgs::kName), name_of_case(c),
                       [c](CaseMemory& memory) { return gradient(memory, c); }});
    }
  }
  return cases;
}

}  // namespace belay::conformance
