#pragma once
// Hugging Face config.json in both directions, for GPT-2, LLaMA and Qwen2.

#include <string>
#include <string_view>

#include "belay/base/dtype.h"
#include "belay/model/model_config.h"

namespace belay {

inline constexpr std::string_view kConfigFile = "config.json";

// Reads a config.json of either generation of rotary keys (rope_theta + rope_scaling, or
// rope_parameters). Absent keys have transformers' defaults. Error(data) names any setting that
// would change the maths in a way the engine does not have; keys it does not know are warned about.
ModelConfig parse_hf_config(std::string_view json, const std::string& path);
ModelConfig load_hf_config(const std::string& dir);

// The config.json that transformers loads (4.x keys, which later versions read too).
std::string hf_config_text(const ModelConfig& config, DType weights);

// Error(usage) naming the setting where reading that config.json back would give another model, or
// none: snapshots of such a model could not be loaded.
void require_hf_config(const ModelConfig& config);

// Names the first setting in which two models differ, with both values; empty when they are the
// same model. Dropout and initialisation are training settings and do not count.
std::string first_difference(const ModelConfig& a, const ModelConfig& b);

}  // namespace belay
