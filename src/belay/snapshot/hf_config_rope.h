#pragma once
// The rotary settings of a Hugging Face configuration, for hf_config.cc.

#include "belay/model/model_config.h"
#include "belay/snapshot/hf_config_fields.h"

namespace belay {

// Both generations of keys. When both are there they must not contradict each other.
RopeConfig read_rope(ConfigFields& fields, std::int64_t seq_len);

}  // namespace belay
