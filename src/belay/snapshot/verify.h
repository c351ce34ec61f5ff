#pragma once
// `belay snapshot verify`: is everything there and unchanged?

#include <string>
#include <vector>

namespace belay {

struct Verified {
  std::string path;
  bool hashed = false;                // a manifest was there, so contents were compared with it
  std::vector<std::string> problems;  // each names the file
};

// A snapshot or imported directory: manifest, hashes, model and tensors against each other. A plain
// Hugging Face directory: config.json, shards and tensors. A run directory: every snapshot and what
// unfinished saves left. A safetensors or llm.c file: its structure.
std::vector<Verified> verify(const std::string& path);

}  // namespace belay
