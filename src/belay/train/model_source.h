#pragma once
// A model from a directory: a Hugging Face checkpoint or a snapshot, which is one too.

#include <string>

#include "belay/model/parameter_store.h"

namespace belay {

// The finished configuration of the directory's config.json.
ModelConfig read_model_config(const std::string& dir);

// The directory's weights into masters and low-precision copies.
void load_weights(Lane& lane, const std::string& dir, const ParameterStore& store);

}  // namespace belay
