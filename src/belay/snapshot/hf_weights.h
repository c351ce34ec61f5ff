#pragma once
// Weights between a Hugging Face directory and our parameters, as the parameter table's HfPart
// lists say. One parameter at a time: memory is bounded by the largest one.

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "belay/base/dtype.h"
#include "belay/model/parameter_table.h"
#include "belay/snapshot/hf_checkpoint.h"
#include "belay/snapshot/output_file.h"
#include "belay/snapshot/parameter_io.h"

namespace belay {

struct ImportOptions {
  bool allow_unknown = false;  // pass over tensors that the model has no place for
};

// Reads model.safetensors or the shards of an index in F32, F16 or BF16. Names may carry the prefix
// "transformer."; rotary and mask buffers are passed over; an lm_head next to tied embeddings must
// equal them.
class HfWeights {
 public:
  // Checks everything. Error(data) names every missing shard, missing or unknown tensor, wrong
  // shape or type in one message. The table must outlive the object.
  HfWeights(const std::string& path, const ParameterTable& table,
            const ImportOptions& options = {});

  // All elements of parameter `index`.
  void read(int index, std::span<float> dst) const;

 private:
  void match_table();
  void find_unknown(bool allowed);
  void check_tied_head(const HfCheckpoint::Entry& head);
  [[nodiscard]] const HfCheckpoint::Entry* find(const std::string& name) const;

  HfCheckpoint checkpoint_;
  const ParameterTable& table_;
  std::vector<std::string> problems_;
  std::set<std::string> used_;
};

// HfWeights, one parameter after the other. The sink sees nothing when there is an error.
void import_weights(const std::string& path, const ParameterTable& table, const ParameterSink& sink,
                    const ImportOptions& options = {});

inline constexpr std::uint64_t kMaxShardBytes = 5'000'000'000;  // of tensors, the usual limit

// Writes model.safetensors, or shards with an index when the tensors take more than
// `max_shard_bytes`. `dtype` is f32, bf16 or f16. Errors as OutputFile; Error(data) when a value
// does not fit f16. Files that were written before an error stay: use a directory that is thrown
// away then (DirectoryWriter).
std::vector<WrittenFile> export_weights(const std::string& dir, const ParameterTable& table,
                                        const ParameterReader& source, DType dtype,
                                        std::uint64_t max_shard_bytes = kMaxShardBytes);

}  // namespace belay
