// Cases of the activations.

#include <fmt/core.h>

#include "belay/device/conformance/cases.h"

namespace belay::conformance {
namespace {

struct ActivationCase {
  Activation kind;
  bool gated;
  DType dtype;
  std::int64_t tokens;
  std::int64_t ffn;
  bool in_place;  // backward: d_src = src
  std::int64_t misalignment;
  double reach;  // values lie in [-reach, reach)
};

std::string name_of_case(const ActivationCase& c) {
  constexpr std::string_view kKinds[] = {"gelu_tanh", "gelu_erf", "silu"};
  return fmt::format("{}{} {} {}x{}{}{} within {}", kKinds[static_cast<int>(c.kind)],
                     c.gated ? " gated" : "", name_of(c.dtype), c.tokens, c.ffn,
                     c.in_place ? " in place" : "",
                     c.misalignment != 0 ? fmt::format(" from {}", c.misalignment) : "", c.reach);
}

std::vector<ActivationCase> activation_cases() {
  std::vector<ActivationCase> cases;
  for (const Activation kind : {Activation::gelu_tanh, Activation::gelu_erf, Activation::silu}) {
    for (const bool gated : {false, true}) {
      for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
        cases.push_back({kind, gated, dtype, 1, 1, false, 0, 2});
        cases.push_back({kind, gated, dtype, 3, 33, true, 1, 4});
        cases.push_back({kind, gated, dtype, 5, 64, false, 0, 8});
        cases.push_back({kind, gated, dtype, 2, 515, true, 3, 1});
        cases.push_back({kind, gated, dtype, 33, 250, false, 0, 3});
        cases.push_back({kind, gated, dtype, 4, 100, false, 0, 200});
      }
    }
  }
  return cases;
}

ActivationForwardArgs forward(CaseMemory& memory, const ActivationCase& c) {
  memory.set_misalignment(c.misalignment);
  ActivationForwardArgs args;
  args.kind = c.kind;
  args.gated = c.gated;
  args.src = memory.input("src", c.dtype, {c.tokens, c.ffn * (c.gated ? 2 : 1)},
                          between(-c.reach, c.reach));
  args.dst = memory.output("dst", c.dtype, {c.tokens, c.ffn});
  return args;
}

ActivationBackwardArgs backward(CaseMemory& memory, const ActivationCase& c) {
  memory.set_misalignment(c.misalignment);
  ActivationBackwardArgs args;
  args.kind = c.kind;
  args.gated = c.gated;
  const Shape shape{c.tokens, c.ffn * (c.gated ? 2 : 1)};
  args.src = memory.input("src", c.dtype, shape, between(-c.reach, c.reach));
  args.d_dst = memory.input("d_dst", c.dtype, {c.tokens, c.ffn});
  if (c.in_place) {
    memory.mark_written(args.src);
    args.d_src = args.src;
  } else {
    args.d_src = memory.output("d_src", c.dtype, shape);
  }
  return args;
}

Gradient gradient(CaseMemory& memory, const ActivationCase& c) {
  const ActivationForwardArgs args = forward(memory, c);
  ActivationBackwardArgs back;
  back.kind = c.kind;
  back.gated = c.gated;
  back.src = args.src;
  back.d_dst = memory.input("cotangent", DType::f32, args.dst.shape);
  back.d_src = memory.output("d_src", DType::f32, args.src.shape);
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
  result.inputs = {{args.src, back.d_src}};
  return result;
}

// Far below 0 the reference's 1 + tanh(u) rounds to 0; the true value is not 0.
constexpr Tolerance kActivation{
    .f64 = 1e-12, .f32 = 1e-6, .bf16 = 3e-3, .f16 = 5e-4, .zero = 1e-14};

}  // namespace

std::vector<OpCase<ActivationForwardArgs>> cases_of(OpTag<ActivationForwardArgs>) {
  std::vector<OpCase<ActivationForwardArgs>> cases;
  for (const ActivationCase& c : activation_cases()) {
    cases.push_back(
        {name_of_case(c), [c](CaseMemory& memory) { return forward(memory, c); }, kActivation});
  }
  return cases;
}

std::vector<OpCase<ActivationBackwardArgs>> cases_of(OpTag<ActivationBackwardArgs>) {
  std::vector<OpCase<ActivationBackwardArgs>> cases;
  for (const ActivationCase& c : activation_cases()) {
    cases.push_back(
        {name_of_case(c), [c](CaseMemory& memory) { return backward(memory, c); }, kActivation});
  }
  return cases;
}

std::vector<GradientCase> activation_gradients() {
  std::vector<GradientCase> cases;
  for (const Activation kind : {Activation::gelu_tanh, Activation::gelu_erf, Activation::silu}) {
    for (const bool gated : {false, true}) {
      const ActivationCase c{kind, gated, DType::f32, 3, 13, false, 0, 3};
      cases.push_back({std::string(ActivationBackwardArgs::kName), name_of_case(c),
                       [c](CaseMemory& memory) { return gradient(memory, c); }});
    }
  }
  return cases;
}

}  // namespace belay::conformance
