#pragma once
// The parameter table is the one truth about weights. Optimizer, snapshot, gradient norm, Hugging
// Face mapping and planner read it; nobody keeps a second list.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "belay/base/tensor.h"
#include "belay/model/model_config.h"

namespace belay {

enum class Init : std::uint8_t { zeros, ones, normal };

// One tensor of a Hugging Face checkpoint that holds some rows of a parameter. Fused parameters
// (qkv, gate and up) are several such parts.
struct HfPart {
  std::string name;            // "model.layers.0.self_attn.q_proj.weight"
  std::int64_t row_begin = 0;  // rows of our [out, in] matrix (or elements of a vector)
  std::int64_t row_end = 0;
  bool transposed = false;  // stored [in, out] there (GPT-2's Conv1D)
};

struct Parameter {
  std::string name;  // "layers.0.attention.qkv.weight"
  Shape shape;       // matrices are [out, in]
  Init init = Init::normal;
  double init_std = 0;
  bool decay = false;         // takes weight decay: matrices and embeddings do, vectors do not
  bool compute_copy = false;  // used in the compute dtype; the others (norms) are used in f32
  std::vector<HfPart> hf;
  std::int64_t offset = 0;  // first element in the flat f32 state (multiple of 32 elements)
  int layer = -1;           // of the model; -1: in front of the layers, or behind them

  [[nodiscard]] std::int64_t elements() const { return shape.elements(); }
};

class ParameterTable {
 public:
  // Returns the parameter's index. Offsets are assigned in order of addition.
  int add(Parameter parameter);
  [[nodiscard]] const std::vector<Parameter>& all() const { return parameters_; }
  [[nodiscard]] const Parameter& operator[](int index) const {
    return parameters_[static_cast<std::size_t>(index)];
  }
  [[nodiscard]] int size() const { return static_cast<int>(parameters_.size()); }
  // -1 when there is none.
  [[nodiscard]] int find(std::string_view name) const;
  // Of all, in order.
  [[nodiscard]] std::vector<std::string> names() const;
  // Number of parameters, without the gaps that alignment leaves.
  [[nodiscard]] std::int64_t parameter_count() const { return count_; }
  // Elements of the flat state, gaps included.
  [[nodiscard]] std::int64_t flat_elements() const { return flat_; }

 private:
  std::vector<Parameter> parameters_;
  std::int64_t count_ = 0;
  std::int64_t flat_ = 0;
};

// The table of a finished configuration. Order: embeddings, layers front to back, final norm, head.
// Tied embeddings are one parameter ("embedding.weight"), stored once.
ParameterTable make_parameter_table(const ModelConfig& config);

}  // namespace belay
