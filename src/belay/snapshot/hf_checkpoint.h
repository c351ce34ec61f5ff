#pragma once
// The tensors of a Hugging Face directory: one model.safetensors, or shards with an index. Opening
// reads headers only; tensors are views of mapped files.

#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "belay/snapshot/safetensors.h"

namespace belay {

inline constexpr std::string_view kWeightsFile = "model.safetensors";
inline constexpr std::string_view kIndexFile = "model.safetensors.index.json";

class HfCheckpoint {
 public:
  struct Entry {
    const SafetensorsFile* file;
    const TensorInfo* info;
    [[nodiscard]] std::span<const std::byte> bytes() const { return file->bytes(*info); }
  };

  // `path` is a directory or one .safetensors file. Error(data) when there are no weights at all or
  // a file is damaged; what is merely missing is collected in problems().
  static HfCheckpoint open(const std::string& path);

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] const Entry* find(std::string_view name) const;
  [[nodiscard]] const std::vector<SafetensorsFile>& files() const { return files_; }
  // All tensors, file by file in the order of their data.
  [[nodiscard]] const std::vector<Entry>& entries() const { return entries_; }
  // Missing shards, tensors that are not where the index says, tensors in two shards.
  [[nodiscard]] const std::vector<std::string>& problems() const { return problems_; }

 private:
  void open_shards();
  void collect();

  std::string path_;
  std::vector<SafetensorsFile> files_;
  std::vector<Entry> entries_;
  std::unordered_map<std::string, std::size_t> index_;
  std::vector<std::string> problems_;
};

// The map of an index file: tensor -> file name. Error(data) on anything malformed, a file name
// that leaves the directory included.
std::vector<std::pair<std::string, std::string>> parse_weight_map(std::string_view json,
                                                                  const std::string& path);

}  // namespace belay
