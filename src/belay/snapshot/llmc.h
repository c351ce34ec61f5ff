#pragma once
// GPT-2 checkpoints of llm.c (model_*.bin): 256 int32 of header, then for each kind of parameter
// all layers back to back, [out, in] as ours. Version 3 holds f32, version 5 bf16; the rows that
// pad the vocabulary are left out.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "belay/base/dtype.h"
#include "belay/base/mapped_file.h"
#include "belay/model/parameter_table.h"

namespace belay {

struct LlmcHeader {
  ModelConfig config;
  DType dtype = DType::f32;
  std::int64_t padded_vocab = 0;
};

// True when the file starts with llm.c's magic number for GPT-2 models.
bool is_llmc_model(std::span<const std::byte> file);

// Checks the header and that the file is exactly as long as it says. Error(data) names the value.
LlmcHeader parse_llmc(std::span<const std::byte> file, const std::string& path);

class LlmcFile {
 public:
  explicit LlmcFile(const std::string& path);

  [[nodiscard]] const ModelConfig& config() const { return header_.config; }
  [[nodiscard]] DType dtype() const { return header_.dtype; }
  // Elements of parameter `index` of the table that make_parameter_table(config()) gives.
  void read(const ParameterTable& table, int index, std::span<float> dst) const;

 private:
  MappedFile file_;
  LlmcHeader header_;
};

}  // namespace belay
