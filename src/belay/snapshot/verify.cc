#include "belay/snapshot/verify.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>

#include "belay/base/error.h"
#include "belay/snapshot/hf_config.h"
#include "belay/snapshot/hf_weights.h"
#include "belay/snapshot/llmc.h"
#include "belay/snapshot/manifest.h"
#include "belay/snapshot/snapshot.h"
#include "belay/snapshot/snapshot_files.h"

namespace belay {
namespace {

namespace fs = std::filesystem;

Verified verify_one(const std::string& dir) {
  Verified result{dir, false, {}};
  std::error_code error;
  try {
    if (fs::exists(fs::path(dir) / kManifestFile, error) ||
        step_of_snapshot(fs::path(dir).filename().string()) >= 0) {
      const Manifest manifest = read_manifest(dir);
      result.hashed = true;
      result.problems = verify_files(dir, manifest);
      if (!result.problems.empty()) return result;
      if (manifest.kind == "snapshot") check_snapshot(dir);
    }
    const ModelConfig config = load_hf_config(dir);
    const ParameterTable table = make_parameter_table(config);
    const HfWeights weights(dir, table);
  } catch (const Error& failure) {
    result.problems.emplace_back(failure.what());
  }
  return result;
}

Verified verify_file(const std::string& path) {
  Verified result{path, false, {}};
  try {
    const MappedFile file(path);
    if (is_llmc_model(file.bytes())) {
      parse_llmc(file.bytes(), path);
    } else {
      parse_safetensors(file.bytes(), path);
    }
  } catch (const Error& failure) {
    result.problems.emplace_back(failure.what());
  }
  return result;
}

}  // namespace

std::vector<Verified> verify(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return {verify_file(path)};
  if (!fs::is_directory(fs::path(path) / kSnapshotDirectory, error)) return {verify_one(path)};
  std::vector<Verified> results;
  const std::string parent = fmt::format("{}/{}", path, kSnapshotDirectory);
  for (const std::string& name : list_snapshots(path)) {
    results.push_back(verify_one(parent + "/" + name));
  }
  if (results.empty()) results.push_back({path, false, {"the run has no snapshot yet"}});
  for (const std::string& name : list_unfinished(path)) {
    results.push_back({parent + "/" + name, false, {"left by a save that did not finish"}});
  }
  return results;
}

}  // namespace belay
