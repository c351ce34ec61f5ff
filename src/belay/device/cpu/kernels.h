#pragma once
// Candidate lists of the host processor, fastest first. An operator with tuned kernels declares an
// overload below and defines it beside its kernels; the template is for those that have none.

#include "belay/device/reference/kernels.h"

namespace belay {

template <class Args>
Candidates<Args> cpu_candidates(OpTag<Args> tag) {
  return reference_candidates(tag);
}

Candidates<AttentionForwardArgs> cpu_candidates(OpTag<AttentionForwardArgs>);
Candidates<AttentionBackwardArgs> cpu_candidates(OpTag<AttentionBackwardArgs>);
Candidates<RotaryArgs> cpu_candidates(OpTag<RotaryArgs>);
Candidates<ScatterRowsArgs> cpu_candidates(OpTag<ScatterRowsArgs>);
Candidates<MatmulArgs> cpu_candidates(OpTag<MatmulArgs> tag);
// Fused kernels (norm.cc, activation.cc, cross_entropy.cc, adamw.cc, embedding.cc, elementwise.cc,
// dropout.cc, reduce.cc).
Candidates<NormForwardArgs> cpu_candidates(OpTag<NormForwardArgs> tag);
Candidates<NormBackwardArgs> cpu_candidates(OpTag<NormBackwardArgs> tag);
Candidates<ActivationForwardArgs> cpu_candidates(OpTag<ActivationForwardArgs> tag);
Candidates<ActivationBackwardArgs> cpu_candidates(OpTag<ActivationBackwardArgs> tag);
Candidates<CrossEntropyArgs> cpu_candidates(OpTag<CrossEntropyArgs> tag);
Candidates<AdamwArgs> cpu_candidates(OpTag<AdamwArgs> tag);
Candidates<SumOfSquaresArgs> cpu_candidates(OpTag<SumOfSquaresArgs> tag);
Candidates<EmbeddingForwardArgs> cpu_candidates(OpTag<EmbeddingForwardArgs> tag);
Candidates<EmbeddingBackwardArgs> cpu_candidates(OpTag<EmbeddingBackwardArgs> tag);
Candidates<FillArgs> cpu_candidates(OpTag<FillArgs> tag);
Candidates<CastArgs> cpu_candidates(OpTag<CastArgs> tag);
Candidates<AddArgs> cpu_candidates(OpTag<AddArgs> tag);
Candidates<DropoutArgs> cpu_candidates(OpTag<DropoutArgs> tag);
Candidates<ColumnSumArgs> cpu_candidates(OpTag<ColumnSumArgs> tag);
Candidates<SumArgs> cpu_candidates(OpTag<SumArgs> tag);

}  // namespace belay
