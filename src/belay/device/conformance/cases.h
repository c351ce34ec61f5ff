#pragma once
// The cases of every operator. To add some: extend the list in the family's file beside this one.
// An operator of AllOps without an overload here does not compile into the harness, and an empty
// list fails it.

#include <vector>

#include "belay/device/conformance/conformance.h"

namespace belay::conformance {

std::vector<OpCase<MatmulArgs>> cases_of(OpTag<MatmulArgs>);
std::vector<OpCase<EmbeddingForwardArgs>> cases_of(OpTag<EmbeddingForwardArgs>);
std::vector<OpCase<EmbeddingBackwardArgs>> cases_of(OpTag<EmbeddingBackwardArgs>);
std::vector<OpCase<NormForwardArgs>> cases_of(OpTag<NormForwardArgs>);
std::vector<OpCase<NormBackwardArgs>> cases_of(OpTag<NormBackwardArgs>);
std::vector<OpCase<AttentionForwardArgs>> cases_of(OpTag<AttentionForwardArgs>);
std::vector<OpCase<AttentionBackwardArgs>> cases_of(OpTag<AttentionBackwardArgs>);
std::vector<OpCase<RotaryArgs>> cases_of(OpTag<RotaryArgs>);
std::vector<OpCase<ScatterRowsArgs>> cases_of(OpTag<ScatterRowsArgs>);
std::vector<OpCase<ActivationForwardArgs>> cases_of(OpTag<ActivationForwardArgs>);
std::vector<OpCase<ActivationBackwardArgs>> cases_of(OpTag<ActivationBackwardArgs>);
std::vector<OpCase<CrossEntropyArgs>> cases_of(OpTag<CrossEntropyArgs>);
std::vector<OpCase<AdamwArgs>> cases_of(OpTag<AdamwArgs>);
std::vector<OpCase<SumOfSquaresArgs>> cases_of(OpTag<SumOfSquaresArgs>);
std::vector<OpCase<FillArgs>> cases_of(OpTag<FillArgs>);
std::vector<OpCase<CastArgs>> cases_of(OpTag<CastArgs>);
std::vector<OpCase<AddArgs>> cases_of(OpTag<AddArgs>);
std::vector<OpCase<DropoutArgs>> cases_of(OpTag<DropoutArgs>);
std::vector<OpCase<ColumnSumArgs>> cases_of(OpTag<ColumnSumArgs>);
std::vector<OpCase<SumArgs>> cases_of(OpTag<SumArgs>);

std::vector<GradientCase> matmul_gradients();
std::vector<GradientCase> embedding_gradients();
std::vector<GradientCase> norm_gradients();
std::vector<GradientCase> attention_gradients();
std::vector<GradientCase> activation_gradients();
std::vector<GradientCase> cross_entropy_gradients();

}  // namespace belay::conformance
