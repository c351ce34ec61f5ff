#include "belay/snapshot/hf_checkpoint.h"

#include <fmt/core.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "belay/base/error.h"
#include "belay/base/file.h"

namespace belay {
namespace {

constexpr std::int64_t kMaxIndex = std::int64_t{100} << 20;

std::string file_name(const std::string& path) {
  return std::filesystem::path(path).filename().string();
}

}  // namespace

std::vector<std::pair<std::string, std::string>> parse_weight_map(std::string_view json,
                                                                  const std::string& path) {
  const nlohmann::json root = nlohmann::json::parse(json, nullptr, false);
  if (root.is_discarded()) fail(ExitCode::data, "{}: not JSON", path);
  if (!root.is_object() || !root.contains("weight_map") || !root["weight_map"].is_object()) {
    fail(ExitCode::data, "{}: there is no object 'weight_map'", path);
  }
  std::vector<std::pair<std::string, std::string>> result;
  for (const auto& [tensor, file] : root["weight_map"].items()) {
    if (!file.is_string()) fail(ExitCode::data, "{}: '{}' names no file", path, tensor);
    const auto name = file.get<std::string>();
    if (name.empty() || name == "." || name == ".." ||
        name.find_first_of(std::string_view("/\\\0", 3)) != std::string::npos) {
      fail(ExitCode::data, "{}: '{}' lies in '{}', which is not a file name of this directory",
           path, tensor, name);
    }
    result.emplace_back(tensor, name);
  }
  return result;
}

HfCheckpoint HfCheckpoint::open(const std::string& path) {
  namespace fs = std::filesystem;
  HfCheckpoint checkpoint;
  checkpoint.path_ = path;
  std::error_code error;
  const fs::path base(path);
  if (fs::is_regular_file(base, error)) {
    checkpoint.files_.push_back(SafetensorsFile::open(path));
  } else if (!fs::is_directory(base, error)) {
    fail(ExitCode::data, "{}: no such file or directory", path);
  } else if (fs::exists(base / kWeightsFile, error)) {
    checkpoint.files_.push_back(SafetensorsFile::open((base / kWeightsFile).string()));
  } else if (fs::exists(base / kIndexFile, error)) {
    checkpoint.open_shards();
    return checkpoint;
  } else {
    fail(ExitCode::data, "{}: there is neither {} nor {} here{}", path, kWeightsFile, kIndexFile,
         fs::exists(base / "pytorch_model.bin", error)
             ? "; pytorch_model.bin is not read: convert it to safetensors first"
             : "");
  }
  checkpoint.collect();
  return checkpoint;
}

void HfCheckpoint::open_shards() {
  const std::string index_path = path_ + "/" + std::string(kIndexFile);
  const auto weight_map = parse_weight_map(read_file(index_path, kMaxIndex), index_path);
  std::map<std::string, bool> present;
  for (const auto& [tensor, name] : weight_map) {
    if (present.contains(name)) continue;
    const std::string shard = path_ + "/" + name;
    std::error_code error;
    present[name] = std::filesystem::exists(shard, error);
    if (present[name]) {
      files_.push_back(SafetensorsFile::open(shard));
    } else {
      problems_.push_back(fmt::format("shard {} is missing", name));
    }
  }
  collect();
  std::unordered_map<std::string_view, bool> mapped;
  for (const auto& [tensor, name] : weight_map) {
    mapped.emplace(tensor, true);
    if (!present[name]) continue;
    const Entry* entry = find(tensor);
    if (entry == nullptr || file_name(entry->file->path()) != name) {
      problems_.push_back(
          fmt::format("tensor {} is not in {}, where the index places it", tensor, name));
    }
  }
  for (const Entry& entry : entries_) {
    if (!mapped.contains(entry.info->name)) {
      problems_.push_back(fmt::format("tensor {} is in {}, but not in the index", entry.info->name,
                                      file_name(entry.file->path())));
    }
  }
}

void HfCheckpoint::collect() {
  for (const SafetensorsFile& file : files_) {
    for (const TensorInfo& info : file.tensors()) {
      const auto [known, added] = index_.emplace(info.name, entries_.size());
      if (added) {
        entries_.push_back({&file, &info});
      } else {
        problems_.push_back(fmt::format("tensor {} is in both {} and {}", info.name,
                                        file_name(entries_[known->second].file->path()),
                                        file_name(file.path())));
      }
    }
  }
}

const HfCheckpoint::Entry* HfCheckpoint::find(std::string_view name) const {
  const auto found = index_.find(std::string(name));
  return found == index_.end() ? nullptr : &entries_[found->second];
}

}  // namespace belay
