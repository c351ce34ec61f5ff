#pragma once
// A trained model in memory, for evaluation and generation.

#include <memory>
#include <string>

#include "belay/model/parameter_store.h"

namespace belay {

struct LoadedModel {
  ModelConfig config;
  ParameterTable table;
  std::unique_ptr<Device> device;
  std::unique_ptr<ParameterStore> store;  // no gradients
};

// `dir`: a Hugging Face directory or a snapshot. Returned by pointer because the store refers to
// the table.
std::unique_ptr<LoadedModel> load_model(const std::string& dir, const std::string& device,
                                        DType compute);

}  // namespace belay
