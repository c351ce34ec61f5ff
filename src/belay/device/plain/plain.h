#pragma once
// The mathematics of each fused operator as a sequence of plain operators: matrix products and
// single passes over memory, with every intermediate result written out whole. What fusion gains,
// in time and in memory, is measured against these, and the fused kernels are tested against them.
//
// They work on host memory. A composition leaves in the operands of the call what the fused
// operator would have left, up to rounding: in 16 bits the intermediate results are rounded too.
// Protections that are switched off (ops/inside.h) make no difference here.

#include <cstddef>
#include <functional>
#include <string_view>
#include <vector>

#include "belay/base/arena.h"
#include "belay/device/device.h"
#include "belay/device/linear_cross_entropy.h"

namespace belay::plain {

struct Composition {
  // Makes what a forward pass of plain operators would have left for the backward pass. Empty where
  // nothing is needed; else to be called once before run.
  std::function<void()> prepare;
  std::function<void()> run;
  // Bytes that a forward pass keeps until the backward pass, beyond the fused operator's results.
  std::size_t kept_bytes = 0;
  // Bytes of intermediate results otherwise, needed while it runs.
  std::size_t scratch_bytes = 0;
};

// Where a composition runs and what its intermediate results are allocated from, at once when it is
// made; they must outlive it.
struct Bench {
  Lane& lane;
  Arena& arena;
};

Composition compose(const Bench& bench, const AttentionForwardArgs& args);
Composition compose(const Bench& bench, const AttentionBackwardArgs& args);
Composition compose(const Bench& bench, const NormForwardArgs& args);
Composition compose(const Bench& bench, const NormBackwardArgs& args);
Composition compose(const Bench& bench, const ActivationForwardArgs& args);
Composition compose(const Bench& bench, const ActivationBackwardArgs& args);
Composition compose(const Bench& bench, const CrossEntropyArgs& args);
Composition compose(const Bench& bench, const AdamwArgs& args);
Composition compose(const Bench& bench, const EmbeddingForwardArgs& args);
// With the logits of all rows at once.
Composition compose(const Bench& bench, const LinearCrossEntropy& args);

// The composition for any operator call, by its name. An operator that is a plain one itself has
// none: the result's run is empty.
Composition compose(const Bench& bench, const OpCall& call);

// Names of the operators that have a composition.
std::vector<std::string_view> composed_ops();

}  // namespace belay::plain
