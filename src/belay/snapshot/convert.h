#pragma once
// `belay snapshot export` and `import`: whole directories from one form to another.

#include <cstdint>
#include <string>

#include "belay/base/dtype.h"
#include "belay/snapshot/hf_weights.h"

namespace belay {

struct Converted {
  std::string directory;
  std::int64_t parameters = 0;
  std::uint64_t bytes = 0;  // of weight files
  std::size_t files = 0;    // of weights, an index included
};

// The snapshot that a path means: itself, or the newest usable one of a run directory.
std::string resolve_snapshot(const std::string& path);

// Writes a Hugging Face directory with the weights of a snapshot, a run's newest snapshot, or
// another Hugging Face directory: config.json, weights in `dtype`, tokenizer files.
// Error(usage) when `out` exists.
Converted export_model(const std::string& source, const std::string& out, DType dtype,
                       std::uint64_t max_shard_bytes);

// Writes a directory that `model.path` of a run takes: config.json, one model.safetensors in f32,
// tokenizer files, and a manifest that `belay snapshot verify` checks. The source is a Hugging Face
// directory or an llm.c GPT-2 checkpoint. Error(usage) when `out` exists.
Converted import_model(const std::string& source, const std::string& out,
                       const ImportOptions& options = {});

// Bytes in "5GB", "500MB", "2GiB" or plain digits; decimal units unless written with an i.
// Error(usage) on anything else.
std::uint64_t parse_size(const std::string& text);

}  // namespace belay
