// Cases of softmax cross-entropy.

#include <fmt/core.h>

#include <cmath>

#include "belay/device/conformance/cases.h"

namespace belay::conformance {
namespace {

enum class Result { none, separate, in_place };

struct CrossEntropyCase {
  DType logits;
  DType d_logits;
  std::int64_t rows;
  std::int64_t vocab;
  Result result;
  float z_loss;
  double reach;
  std::int64_t misalignment;
};

std::string name_of_case(const CrossEntropyCase& c) {
  const std::string gradient = c.result == Result::none
                                   ? "no gradient"
                                   : fmt::format("{}{}", name_of(c.d_logits),
                                                 c.result == Result::in_place ? " in place" : "");
  return fmt::format("{} -> {} {}x{} z {} within {}{}", name_of(c.logits), gradient, c.rows,
                     c.vocab, c.z_loss, c.reach,
                     c.misalignment != 0 ? fmt::format(" from {}", c.misalignment) : "");
}

std::vector<CrossEntropyCase> cross_entropy_cases() {
  const DType f32 = DType::f32;
  const DType bf16 = DType::bf16;
  const DType f16 = DType::f16;
  return {
      {f32, f32, 1, 1, Result::separate, 0, 3, 0},
      {f32, f32, 7, 257, Result::in_place, 0, 6, 1},
      {f32, f32, 5, 5003, Result::separate, 1e-3F, 10, 0},
      {f32, f32, 40, 2048, Result::in_place, 1e-4F, 4, 0},
      {f32, f32, 6, 300, Result::none, 0, 5, 3},
      {f32, f32, 4, 100, Result::separate, 0, 300, 0},
      {f32, bf16, 9, 777, Result::separate, 1e-3F, 6, 5},
      {f32, bf16, 3, 2049, Result::separate, 0, 6, 0},
      {bf16, bf16, 8, 96, Result::in_place, 0, 6, 0},
      {bf16, bf16, 5, 4100, Result::in_place, 1e-3F, 6, 1},
      {bf16, f32, 5, 131, Result::separate, 0, 6, 3},
      {bf16, bf16, 5, 31, Result::none, 0, 6, 0},
      {f16, f16, 8, 96, Result::in_place, 0, 6, 0},
      {f16, f16, 5, 4100, Result::in_place, 1e-3F, 6, 1},
      {f32, f16, 9, 777, Result::separate, 1e-3F, 6, 5},
      {f32, f16, 3, 2049, Result::separate, 0, 6, 0},
      {f16, f32, 5, 131, Result::separate, 0, 6, 3},
      {f16, f16, 5, 31, Result::none, 0, 6, 0},
  };
}

CrossEntropyArgs build(CaseMemory& memory, const CrossEntropyCase& c) {
  memory.set_misalignment(c.misalignment);
  const Shape shape{c.rows, c.vocab};
  CrossEntropyArgs args;
  args.logits = memory.input("logits", c.logits, shape, between(-c.reach, c.reach));
  // Every fourth row does not count.
  args.targets = memory.input("targets", DType::i32, {c.rows}, [c](std::int64_t row, double u) {
    return row % 4 == 1 ? -1.0 : std::floor(u * static_cast<double>(c.vocab));
  });
  args.nll = memory.output("nll", DType::f32, {c.rows});
  if (c.result == Result::in_place) {
    memory.mark_written(args.logits);
    args.d_logits = args.logits;
  } else if (c.result == Result::separate) {
    args.d_logits = memory.output("d_logits", c.d_logits, shape);
  }
  args.scale = 0.37F;
  args.z_loss = c.z_loss;
  return args;
}

Gradient gradient(CaseMemory& memory, const CrossEntropyCase& c) {
  const CrossEntropyArgs args = build(memory, c);
  CrossEntropyArgs forward = args;
  forward.d_logits = {};
  Gradient result;
  // The log-sum-exp of a counted row is nll + logits[target].
  result.loss = [=] {
    KernelContext none;
    run_reference(forward, none);
    double sum = 0;
    for (std::int64_t row = 0; row < c.rows; ++row) {
      const std::int32_t target = args.targets.as<std::int32_t>()[row];
      if (target < 0) continue;
      const double nll = args.nll.as<double>()[row];
      const double lse = nll + args.logits.as<double>()[row * c.vocab + target];
      sum += nll + static_cast<double>(c.z_loss) * lse * lse;
    }
    return static_cast<double>(args.scale) * sum;
  };
  result.backward = [=] {
    KernelContext none;
    run_reference(args, none);
  };
  result.inputs = {{args.logits, args.d_logits}};
  return result;
}

}  // namespace

std::vector<OpCase<CrossEntropyArgs>> cases_of(OpTag<CrossEntropyArgs>) {
  std::vector<OpCase<CrossEntropyArgs>> cases;
  for (const CrossEntropyCase& c : cross_entropy_cases()) {
    cases.push_back({name_of_case(c), [c](CaseMemory& memory) { return build(memory, c); }});
  }
  return cases;
}

std::vector<GradientCase> cross_entropy_gradients() {
  std::vector<GradientCase> cases;
  for (const float z_loss : {0.0F, 1e-2F}) {
    const CrossEntropyCase c{DType::f32, DType::f32, 5, 11, Result::separate, z_loss, 3, 0};
    cases.push_back({std::string(CrossEntropyArgs::kName), name_of_case(c),
                     [c](CaseMemory& memory) { return gradient(memory, c); }});
  }
  return cases;
}

}  // namespace belay::conformance
