#pragma once
// Plain kernels: every operator written from its definition, computed in double, one element at a
// time, for every dtype including f64. They are the oracle of the conformance harness and the last
// candidate of every device that shares the host's memory.

#include "belay/device/ops/all.h"

namespace belay {

void run_reference(const MatmulArgs& args, KernelContext& context);
void run_reference(const EmbeddingForwardArgs& args, KernelContext& context);
void run_reference(const EmbeddingBackwardArgs& args, KernelContext& context);
void run_reference(const NormForwardArgs& args, KernelContext& context);
void run_reference(const NormBackwardArgs& args, KernelContext& context);
void run_reference(const AttentionForwardArgs& args, KernelContext& context);
void run_reference(const AttentionBackwardArgs& args, KernelContext& context);
void run_reference(const RotaryArgs& args, KernelContext& context);
void run_reference(const ScatterRowsArgs& args, KernelContext& context);
void run_reference(const ActivationForwardArgs& args, KernelContext& context);
void run_reference(const ActivationBackwardArgs& args, KernelContext& context);
void run_reference(const CrossEntropyArgs& args, KernelContext& context);
void run_reference(const AdamwArgs& args, KernelContext& context);
void run_reference(const SumOfSquaresArgs& args, KernelContext& context);
void run_reference(const FillArgs& args, KernelContext& context);
void run_reference(const CastArgs& args, KernelContext& context);
void run_reference(const AddArgs& args, KernelContext& context);
void run_reference(const DropoutArgs& args, KernelContext& context);
void run_reference(const ColumnSumArgs& args, KernelContext& context);
void run_reference(const SumArgs& args, KernelContext& context);

template <class Args>
inline constexpr Candidate<Args> kReferenceKernel{
    "reference", nullptr, nullptr,
    [](const Args& args, KernelContext& context) { run_reference(args, context); }};

template <class Args>
Candidates<Args> reference_candidates(OpTag<Args>) {
  return {&kReferenceKernel<Args>, 1};
}

const KernelTable& reference_table();

}  // namespace belay
