#pragma once
// Weights between a Hugging Face directory and our parameters, as the parameter table's HfPart
// lists say. One parameter at a time: memory is bounded by the largest one.

#include <cstdint>
#include <string>
#include <vector>

#include "belay/base/dtype.h"
#include "belay/model/parameter_table.h"
#include "belay/snapshot/parameter_io.h"

namespace belay {

struct ImportOptions {
  bool allow_unknown = false;  // pass over tensors that the model has no place for
};

// Reads model.safetensors or the shards of an index in F32, F16 or BF16. Names may carry the prefix
// "transformer."; rotary and mask buffers are passed over; an lm_head next to tied embeddings must
// equal them. Error(data), before the sink sees anything, names every missing shard, missing or
// unknown tensor, wrong shape or type in one message.
void import_weights(const std::string& path, const ParameterTable& table, const ParameterSink& sink,
                    const ImportOptions& options = {});

struct WrittenFile {
  std::string name;
  std::uint64_t bytes = 0;
  std::uint64_t hash = 0;  // XXH3-64
};

inline constexpr std::uint64_t kMaxShardBytes = 5'000'000'000;  // of tensors, the usual limit

// Writes model.safetensors, or shards with an index when the tensors take more than
// `max_shard_bytes`. `dtype` is f32, bf16 or f16. Errors as OutputFile; Error(data) when a value
// does not fit f16. Files that were written before an error stay: use a directory that is thrown
// away then (DirectoryWriter).
std::vector<WrittenFile> export_weights(const std::string& dir, const ParameterTable& table,
                                        const ParameterReader& source, DType dtype,
                                        std::uint64_t max_shard_bytes = kMaxShardBytes);

}  // namespace belay
