#pragma once
// The list of operators. Device tables, the conformance harness and the benchmarks walk it.

#include <tuple>

#include "belay/device/ops/activation.h"
#include "belay/device/ops/attention.h"
#include "belay/device/ops/cross_entropy.h"
#include "belay/device/ops/elementwise.h"
#include "belay/device/ops/embedding.h"
#include "belay/device/ops/matmul.h"
#include "belay/device/ops/norm.h"
#include "belay/device/ops/optimizer.h"

namespace belay {

template <class... Args>
struct OpList {};

using AllOps = OpList<MatmulArgs, EmbeddingForwardArgs, EmbeddingBackwardArgs, NormForwardArgs,
                      NormBackwardArgs, AttentionForwardArgs, AttentionBackwardArgs, RotaryArgs,
                      ScatterRowsArgs, ActivationForwardArgs, ActivationBackwardArgs,
                      CrossEntropyArgs, AdamwArgs, SumOfSquaresArgs, FillArgs, CastArgs, AddArgs,
                      DropoutArgs, ColumnSumArgs, SumArgs>;

template <class List>
struct KernelTableOf;

template <class... Args>
struct KernelTableOf<OpList<Args...>> {
  std::tuple<Candidates<Args>...> candidates;
};

// One row of candidates per operator.
using KernelTable = KernelTableOf<AllOps>;

}  // namespace belay
