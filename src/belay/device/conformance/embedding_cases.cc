// Cases of the embeddings.

#include <fmt/core.h>

#include "belay/device/conformance/cases.h"

namespace belay::conformance {
namespace {

struct EmbeddingCase {
  DType table;
  DType dst;
  std::int64_t tokens;
  std::int64_t vocab;
  std::int64_t hidden;
  std::int64_t seq;  // rows of the position table; 0: none
  std::int64_t misalignment;
};

std::string name_of_case(const EmbeddingCase& c) {
  return fmt::format("{}->{} {} of {}x{}{}{}", name_of(c.table), name_of(c.dst), c.tokens, c.vocab,
                     c.hidden, c.seq != 0 ? fmt::format(" positions {}", c.seq) : "",
                     c.misalignment != 0 ? fmt::format(" from {}", c.misalignment) : "");
}

std::vector<EmbeddingCase> embedding_cases() {
  const DType f32 = DType::f32;
  const DType bf16 = DType::bf16;
  const DType f16 = DType::f16;
  return {
      {f32, f32, 1, 1, 1, 0, 0},        {f32, f32, 33, 7, 48, 0, 1},
      {f32, f32, 100, 300, 65, 32, 3},  {bf16, bf16, 64, 90, 128, 16, 0},
      {bf16, bf16, 19, 500, 37, 8, 5},  {f32, bf16, 40, 50, 33, 10, 0},
      {bf16, f32, 40, 50, 96, 0, 1},    {f32, f32, 50, 40, 2500, 25, 0},
      {bf16, bf16, 300, 3, 1100, 0, 0}, {f16, f16, 64, 90, 128, 16, 0},
      {f16, f16, 19, 500, 37, 8, 5},    {f32, f16, 40, 50, 33, 10, 0},
      {f16, f32, 40, 50, 96, 0, 1},     {f16, f16, 300, 3, 1100, 0, 0},
  };
}

// Positions count up within rows of the case's length, as packed rows do.
Values positions_of(const EmbeddingCase& c) {
  return [c](std::int64_t t, double) { return static_cast<double>(t % c.seq); };
}

EmbeddingForwardArgs forward(CaseMemory& memory, const EmbeddingCase& c) {
  memory.set_misalignment(c.misalignment);
  EmbeddingForwardArgs args;
  args.tokens = memory.input("tokens", DType::i32, {c.tokens}, integers(0, c.vocab));
  args.table = memory.input("table", c.table, {c.vocab, c.hidden});
  if (c.seq != 0) {
    args.positions = memory.input("positions", DType::i32, {c.tokens}, positions_of(c));
    args.positions_table = memory.input("positions_table", c.table, {c.seq, c.hidden});
  }
  args.dst = memory.output("dst", c.dst, {c.tokens, c.hidden});
  return args;
}

EmbeddingBackwardArgs backward(CaseMemory& memory, const EmbeddingCase& c,
                               const Values& start = between(-1, 1)) {
  memory.set_misalignment(c.misalignment);
  EmbeddingBackwardArgs args;
  args.tokens = memory.input("tokens", DType::i32, {c.tokens}, integers(0, c.vocab));
  args.d_dst = memory.input("d_dst", c.dst, {c.tokens, c.hidden});
  args.d_table = memory.inout("d_table", DType::f32, {c.vocab, c.hidden}, start);
  if (c.seq != 0) {
    args.positions = memory.input("positions", DType::i32, {c.tokens}, positions_of(c));
    args.d_positions_table =
        memory.inout("d_positions_table", DType::f32, {c.seq, c.hidden}, start);
  }
  return args;
}

Gradient gradient(CaseMemory& memory, const EmbeddingCase& c) {
  const EmbeddingForwardArgs args = forward(memory, c);
  EmbeddingBackwardArgs back;
  back.tokens = args.tokens;
  back.positions = args.positions;
  back.d_dst = memory.input("cotangent", DType::f32, args.dst.shape);
  back.d_table = memory.inout("d_table", DType::f32, args.table.shape, constant(0));
  if (c.seq != 0) {
    back.d_positions_table =
        memory.inout("d_positions_table", DType::f32, args.positions_table.shape, constant(0));
  }
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
  result.inputs = {{args.table, back.d_table}};
  if (c.seq != 0) result.inputs.emplace_back(args.positions_table, back.d_positions_table);
  return result;
}

}  // namespace

std::vector<OpCase<EmbeddingForwardArgs>> cases_of(OpTag<EmbeddingForwardArgs>) {
  std::vector<OpCase<EmbeddingForwardArgs>> cases;
  for (const EmbeddingCase& c : embedding_cases()) {
    cases.push_back({name_of_case(c), [c](CaseMemory& memory) { return forward(memory, c); }});
  }
  return cases;
}

std::vector<OpCase<EmbeddingBackwardArgs>> cases_of(OpTag<EmbeddingBackwardArgs>) {
  std::vector<OpCase<EmbeddingBackwardArgs>> cases;
  for (const EmbeddingCase& c : embedding_cases()) {
    cases.push_back({name_of_case(c), [c](CaseMemory& memory) { return backward(memory, c); }});
  }
  return cases;
}

std::vector<GradientCase> embedding_gradients() {
  std::vector<GradientCase> cases;
  for (const std::int64_t seq : {0, 4}) {
    const EmbeddingCase c{DType::f32, DType::f32, 9, 5, 3, seq, 0};
    cases.push_back({std::string(EmbeddingBackwardArgs::kName), name_of_case(c),
                     [c](CaseMemory& memory) { return gradient(memory, c); }});
  }
  return cases;
}

}  // namespace belay::conformance
