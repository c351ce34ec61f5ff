#pragma once
// The table that the rotary operator reads.

#include <vector>

#include "belay/model/model_config.h"

namespace belay {

// [seq_len, head_dim] row-major: head_dim/2 cosines, then head_dim/2 sines, both multiplied by the
// attention factor of yarn. Frequencies follow Hugging Face's rope_scaling types: linear (Chen et
// al., 2306.15595), dynamic NTK, yarn (Peng et al., 2309.00071, eqs. 19-23), llama3.
std::vector<float> rope_table(const ModelConfig& config);

}  // namespace belay
