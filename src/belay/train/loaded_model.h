#pragma once
// A trained model in memory, for evaluation and generation.

#include <memory>
#include <string>

#include "belay/data/tokenizer.h"
#include "belay/model/parameter_store.h"

namespace belay {

struct LoadedModel {
  ModelConfig config;
  ParameterTable table;
  std::unique_ptr<Device> device;
  std::unique_ptr<ParameterStore> store;  // no gradients
};

// `dir`: a Hugging Face directory, a snapshot, or a run directory (its newest good snapshot).
// Returned by pointer because the store refers to the table.
std::unique_ptr<LoadedModel> load_model(const std::string& dir, const std::string& device,
                                        DType compute);

// The snapshot that `dir` stands for: itself, or the newest good one of a run directory.
std::string model_directory(const std::string& dir);

}  // namespace belay
