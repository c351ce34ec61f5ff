#include "belay/snapshot/convert.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <utility>

#include "belay/base/error.h"
#include "belay/base/log.h"
#include "belay/base/version.h"
#include "belay/snapshot/directory_writer.h"
#include "belay/snapshot/hf_config.h"
#include "belay/snapshot/llmc.h"
#include "belay/snapshot/manifest.h"
#include "belay/snapshot/output_file.h"
#include "belay/snapshot/snapshot.h"
#include "belay/snapshot/snapshot_files.h"

namespace belay {
namespace {

namespace fs = std::filesystem;

// What belongs to the weights or to the training, and is written anew or left behind; every other
// small file beside them (tokenizer, generation settings, licence) comes along.
bool is_own_file(const std::string& name) {
  return name == kConfigFile || name == kManifestFile || name == kOptimizerFile ||
         name == kStateFile || name.ends_with(".safetensors") ||
         name.ends_with(".safetensors.index.json") || name.ends_with(".bin") ||
         name.ends_with(".bin.index.json") || name.ends_with(".pt") || name.ends_with(".pth") ||
         name.ends_with(".h5") || name.ends_with(".msgpack") || name.ends_with(".onnx") ||
         name.ends_with(".gguf") || name.starts_with(".");
}

std::vector<WrittenFile> copy_companions(const std::string& source, const std::string& out) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(source)) {
    const std::string name = entry.path().filename().string();
    std::error_code error;
    if (entry.is_regular_file(error) && !is_own_file(name)) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  std::vector<WrittenFile> written;
  for (const std::string& name : names) {
    written.push_back(copy_file_into(fmt::format("{}/{}", source, name), out));
  }
  return written;
}

Converted summary(const std::string& out, const ParameterTable& table,
                  const std::vector<WrittenFile>& weights) {
  Converted result{out, table.parameter_count(), 0, weights.size()};
  for (const WrittenFile& file : weights) result.bytes += file.bytes;
  return result;
}

// Config and weights; the caller adds what comes along.
std::vector<WrittenFile> write_model(const std::string& out, const ModelConfig& config,
                                     const ParameterTable& table, const ParameterReader& source,
                                     DType dtype, std::uint64_t max_shard_bytes) {
  std::vector<WrittenFile> files = export_weights(out, table, source, dtype, max_shard_bytes);
  files.push_back(write_text_file(out, kConfigFile, hf_config_text(config, dtype)));
  return files;
}

}  // namespace

std::string resolve_snapshot(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(fs::path(path) / kSnapshotDirectory, error)) return path;
  const std::optional<FoundSnapshot> found = find_latest_snapshot(path);
  if (!found) fail(ExitCode::data, "{}: the run has no snapshot yet", path);
  for (const std::string& reason : found->passed_over) log::warn("passed over {}", reason);
  return found->dir;
}

Converted export_model(const std::string& source, const std::string& out, DType dtype,
                       std::uint64_t max_shard_bytes) {
  const std::string from = resolve_snapshot(source);
  std::error_code error;
  if (fs::exists(fs::path(from) / kManifestFile, error)) verify_directory(from);
  const ModelConfig config = load_hf_config(from);
  const ParameterTable table = make_parameter_table(config);
  const HfWeights weights(from, table);
  DirectoryWriter directory(out, DirectoryWriter::Existing::refuse);
  const std::string& target = directory.temporary();
  std::vector<WrittenFile> files = write_model(
      target, config, table, [&](int index, std::span<float> dst) { weights.read(index, dst); },
      dtype, max_shard_bytes);
  files.pop_back();  // config.json is not a file of weights
  copy_companions(from, target);
  directory.finish();
  return summary(out, table, files);
}

Converted import_model(const std::string& source, const std::string& out,
                       const ImportOptions& options) {
  std::error_code error;
  const bool from_file = fs::is_regular_file(source, error);
  std::optional<LlmcFile> llmc;
  if (from_file) llmc.emplace(source);
  const ModelConfig config = from_file ? llmc->config() : load_hf_config(source);
  const ParameterTable table = make_parameter_table(config);
  std::optional<HfWeights> weights;
  if (!from_file) weights.emplace(source, table, options);

  DirectoryWriter directory(out, DirectoryWriter::Existing::refuse);
  const std::string& target = directory.temporary();
  Manifest manifest;
  manifest.kind = "weights";
  manifest.engine = engine_version();
  manifest.files = write_model(
      target, config, table,
      [&](int index, std::span<float> dst) {
        if (from_file) {
          llmc->read(table, index, dst);
        } else {
          weights->read(index, dst);
        }
      },
      DType::f32, UINT64_MAX);
  Converted result = summary(out, table, {manifest.files.front()});
  if (!from_file) {
    for (WrittenFile& file : copy_companions(source, target)) {
      manifest.files.push_back(std::move(file));
    }
  }
  write_manifest(target, manifest);
  directory.finish();
  return result;
}

std::uint64_t parse_size(const std::string& text) {
  static constexpr std::array<std::pair<std::string_view, std::uint64_t>, 8> kUnits = {
      {{"", 1},
       {"B", 1},
       {"KB", 1000},
       {"MB", 1000 * 1000},
       {"GB", 1000 * 1000 * 1000},
       {"KiB", 1 << 10},
       {"MiB", 1 << 20},
       {"GiB", 1 << 30}}};
  std::uint64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error == std::errc() && number > 0) {
    for (const auto& [unit, factor] : kUnits) {
      std::uint64_t bytes = 0;
      if (std::string_view(stop, static_cast<std::size_t>(end - stop)) == unit &&
          !__builtin_mul_overflow(number, factor, &bytes)) {
        return bytes;
      }
    }
  }
  fail(ExitCode::usage, "size '{}' is not understood; write for example 500MB, 5GB or 2GiB", text);
}

}  // namespace belay
