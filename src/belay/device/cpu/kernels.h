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
Candidates<MatmulArgs> cpu_candidates(OpTag<MatmulArgs> tag);

}  // namespace belay
