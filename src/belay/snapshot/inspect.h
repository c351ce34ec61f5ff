#pragma once
// What a snapshot, a Hugging Face directory or a single checkpoint file holds, for people and for
// programs.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "belay/model/model_config.h"
#include "belay/snapshot/safetensors.h"
#include "belay/snapshot/snapshot.h"

namespace belay {

struct TensorNorms {
  double l2 = 0;
  double max_abs = 0;
  std::uint64_t non_finite = 0;  // left out of the other two
};

struct InspectedTensor {
  std::string name;
  StoredType dtype = StoredType::f32;
  std::vector<std::uint64_t> shape;
  std::uint64_t bytes = 0;
  std::optional<TensorNorms> norms;  // F32, BF16 and F16 only, when asked for
};

struct InspectedFile {
  std::string name;
  std::uint64_t bytes = 0;
  std::vector<InspectedTensor> tensors;  // empty for files of other kinds
};

struct Inspection {
  std::string path;
  std::string kind;    // "snapshot", "weights", "hugging face", "safetensors", "llm.c"
  std::string engine;  // version that wrote it; empty when unknown
  std::optional<ModelConfig> config;
  std::int64_t parameters = 0;  // of the model; 0 without a configuration
  std::optional<SnapshotState> state;
  std::vector<InspectedFile> files;
};

// `path` is a snapshot, a Hugging Face directory, a run directory (its newest snapshot), a
// safetensors file or an llm.c checkpoint. Reads headers only unless norms are asked for; hashes
// are not checked. Error(data) when something cannot be read.
Inspection inspect(const std::string& path, bool norms);

std::string inspection_text(const Inspection& inspection);
std::string inspection_json(const Inspection& inspection);

// Norms over the tensor's bytes in double, in a fixed order.
TensorNorms tensor_norms(DType dtype, std::span<const std::byte> bytes);

// The model in one line: "llama: 2 layers, hidden 32, ...".
std::string describe_model(const ModelConfig& config);

}  // namespace belay
