#include "belay/snapshot/snapshot.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "belay/base/error.h"
#include "belay/base/file.h"
#include "belay/base/log.h"
#include "belay/base/version.h"
#include "belay/snapshot/directory_writer.h"
#include "belay/snapshot/elements.h"
#include "belay/snapshot/hf_config.h"
#include "belay/snapshot/hf_weights.h"
#include "belay/snapshot/manifest.h"
#include "belay/snapshot/snapshot_files.h"
#include "belay/snapshot/snapshot_state.h"

namespace belay {
namespace {

constexpr std::int64_t kMaxState = std::int64_t{64} << 20;

// Headers, JSON files and block rounding of the file system.
constexpr std::uint64_t kSlack = std::uint64_t{1} << 20;

std::vector<std::uint64_t> shape_of(const Parameter& parameter) {
  std::vector<std::uint64_t> shape;
  for (int axis = 0; axis < parameter.shape.rank(); ++axis) {
    shape.push_back(static_cast<std::uint64_t>(parameter.shape[axis]));
  }
  return shape;
}

WrittenFile write_optimizer(const std::string& dir, const ParameterTable& table,
                            const SnapshotSource& source) {
  std::vector<TensorInfo> tensors;
  for (const Parameter& parameter : table.all()) {
    for (const char moment : {'m', 'v'}) {
      tensors.push_back(
          {moment_name(moment, parameter.name), StoredType::f32, shape_of(parameter), 0, 0});
    }
  }
  SafetensorsWriter writer(dir + "/" + std::string(kOptimizerFile), std::move(tensors));
  std::vector<float> values;
  for (const TensorInfo& info : writer.tensors()) {
    const int index = table.find(std::string_view(info.name).substr(2));
    values.resize(static_cast<std::size_t>(table[index].elements()));
    (info.name.front() == 'm' ? source.m : source.v)(index, values);
    writer.append(std::as_bytes(std::span<const float>(values)));
  }
  writer.finish();
  return {std::string(kOptimizerFile), writer.bytes(), writer.hash()};
}

void write_files(const std::string& dir, const ModelConfig& config, const ParameterTable& table,
                 const SnapshotState& state, const SnapshotSource& source,
                 const SnapshotOptions& options) {
  Manifest manifest;
  manifest.kind = "snapshot";
  manifest.engine = engine_version();
  manifest.step = state.step;
  manifest.files.push_back(write_text_file(dir, kConfigFile, hf_config_text(config, DType::f32)));
  // One file whatever its size: nothing here is uploaded anywhere.
  manifest.files.push_back(
      export_weights(dir, table, source.weights, DType::f32, UINT64_MAX).front());
  manifest.files.push_back(write_optimizer(dir, table, source));
  manifest.files.push_back(write_text_file(dir, kStateFile, state_text(state)));
  if (!options.tokenizer.empty()) manifest.files.push_back(copy_file_into(options.tokenizer, dir));
  for (const Attachment& attachment : options.attachments) {
    std::error_code error;
    std::filesystem::rename(attachment.path, dir + "/" + attachment.file.name, error);
    if (error) {
      fail(ExitCode::data, "{}: cannot be moved into the snapshot {}: {}", attachment.path, dir,
           error.message());
    }
    manifest.files.push_back(attachment.file);
  }
  write_manifest(dir, manifest);
}

void prune(const std::string& run_dir, const std::string& newest, std::int64_t keep_last) {
  if (keep_last <= 0) return;
  std::vector<std::string> names = list_snapshots(run_dir);
  std::erase(names, newest);
  // Those of later steps were abandoned when the run went on from an earlier one; they go first.
  std::stable_partition(names.begin(), names.end(), [&](const std::string& name) {
    return step_of_snapshot(name) < step_of_snapshot(newest);
  });
  for (std::size_t i = static_cast<std::size_t>(keep_last - 1); i < names.size(); ++i) {
    std::error_code error;
    std::filesystem::remove_all(fmt::format("{}/{}/{}", run_dir, kSnapshotDirectory, names[i]),
                                error);
    if (error) log::warn("cannot remove the old snapshot {}: {}", names[i], error.message());
  }
}

// Every check before any sink is called, so that nobody starts with part of a state.
void check_moments(const SafetensorsFile& file, const ParameterTable& table) {
  for (const Parameter& parameter : table.all()) {
    for (const char moment : {'m', 'v'}) {
      const std::string name = moment_name(moment, parameter.name);
      const TensorInfo* info = file.find(name);
      if (info == nullptr) fail(ExitCode::data, "{}: tensor '{}' is missing", file.path(), name);
      if (info->dtype != StoredType::f32 || info->shape != shape_of(parameter)) {
        fail(ExitCode::data, "{}: tensor '{}' is {} {}, the model needs F32 {}", file.path(), name,
             name_of(info->dtype), shape_text(info->shape), to_string(parameter.shape));
      }
    }
  }
  if (file.tensors().size() != 2 * static_cast<std::size_t>(table.size())) {
    fail(ExitCode::data, "{}: {} tensors, the model has {}", file.path(), file.tensors().size(),
         2 * table.size());
  }
}

void read_moments(const SafetensorsFile& file, const ParameterTable& table,
                  const SnapshotSink& sink) {
  std::vector<float> values;
  for (const auto& [moment, take] : {std::pair('m', &sink.m), std::pair('v', &sink.v)}) {
    for (int index = 0; index < table.size(); ++index) {
      const TensorInfo& info = *file.find(moment_name(moment, table[index].name));
      values.resize(static_cast<std::size_t>(table[index].elements()));
      decode_elements(DType::f32, file.bytes(info), values);
      file.release(info);
      (*take)(index, values);
    }
  }
}

void require_space(const std::string& path, const std::string& dir, std::uint64_t needed) {
  const std::uint64_t available = free_bytes(dir);
  if (available >= needed) return;
  fail(ExitCode::capacity,
       "{}: a snapshot needs {} bytes, {} are free; free some space, lower the number of "
       "snapshots kept, or move the run directory",
       path, needed, available);
}

}  // namespace

std::string save_snapshot(const std::string& run_dir, const ModelConfig& config,
                          const ParameterTable& table, const SnapshotState& state,
                          const SnapshotSource& source, const SnapshotOptions& options) {
  const std::string name = snapshot_name(state.step);
  const std::string parent = fmt::format("{}/{}", run_dir, kSnapshotDirectory);
  const std::string final_path = parent + "/" + name;
  std::error_code error;
  std::filesystem::create_directories(parent, error);
  clean_unfinished_snapshots(run_dir);
  const std::uint64_t needed = snapshot_bytes(table);
  require_space(final_path, parent, needed);  // attachments are there already
  try {
    DirectoryWriter directory(final_path, DirectoryWriter::Existing::replace);
    write_files(directory.temporary(), config, table, state, source, options);
    directory.finish();
  } catch (const Error& failure) {
    if (failure.code() != ExitCode::capacity) throw;
    fail(ExitCode::capacity,
         "{}: the snapshot did not fit and was removed: it needs {} bytes, {} are free ({})",
         final_path, needed, free_bytes(parent), failure.what());
  }
  write_file(fmt::format("{}/{}", parent, kLatestFile), name + "\n");
  prune(run_dir, name, options.keep_last);
  return final_path;
}

SnapshotState load_snapshot(const std::string& dir, const ModelConfig& expected,
                            const ParameterTable& table, const SnapshotSink& sink) {
  const Manifest manifest = verify_directory(dir);
  if (manifest.kind != "snapshot") {
    fail(ExitCode::data,
         "{}: holds weights only, no optimizer and data position; start a new run from it with "
         "model.path instead of resuming",
         dir);
  }
  if (const std::string difference = first_difference(load_hf_config(dir), expected);
      !difference.empty()) {
    fail(ExitCode::usage,
         "{}: the snapshot's model is not the run's: {} (snapshot and run); go on with the "
         "snapshot's [model], or start a new run (another --out)",
         dir, difference);
  }
  const bool with_moments = sink.m && sink.v;
  const SafetensorsFile optimizer = SafetensorsFile::open(dir + "/" + std::string(kOptimizerFile));
  check_moments(optimizer, table);
  SnapshotState state = load_snapshot_state(dir);
  import_weights(dir, table, sink.weights);
  if (with_moments) read_moments(optimizer, table, sink);
  return state;
}

void check_snapshot(const std::string& dir) {
  check_moments(SafetensorsFile::open(dir + "/" + std::string(kOptimizerFile)),
                make_parameter_table(load_hf_config(dir)));
  load_snapshot_state(dir);
}

SnapshotState load_snapshot_state(const std::string& dir) {
  const std::string path = dir + "/" + std::string(kStateFile);
  const Manifest manifest = read_manifest(dir);
  const std::string text = read_file(path, kMaxState);
  for (const WrittenFile& file : manifest.files) {
    if (file.name != kStateFile) continue;
    if (file.bytes != text.size() ||
        file.hash != hash_bytes(std::as_bytes(std::span(text.data(), text.size())))) {
      fail(ExitCode::data, "{}: the content has changed since it was written", path);
    }
    return parse_state(text, path);
  }
  fail(ExitCode::data, "{}: the manifest does not list it", path);
}

std::uint64_t snapshot_bytes(const ParameterTable& table) {
  constexpr std::uint64_t kPerTensor = 256;  // header entry, generously
  std::uint64_t tensors = 0;
  for (const Parameter& parameter : table.all()) tensors += 2 + parameter.hf.size();
  return static_cast<std::uint64_t>(table.parameter_count()) * 3 * sizeof(float) +
         tensors * kPerTensor + kSlack;
}

void require_snapshot_space(const std::string& run_dir, const ParameterTable& table,
                            std::uint64_t attachments) {
  require_space(run_dir, run_dir, snapshot_bytes(table) + attachments);
}

std::string snapshot_space_warning(const std::string& run_dir, const ParameterTable& table,
                                   std::uint64_t attachments) {
  const std::uint64_t needed = snapshot_bytes(table) + attachments;
  const std::uint64_t available = free_bytes(run_dir);
  if (available >= needed) return "";
  return fmt::format("{}: a snapshot needs {} bytes, {} are free; saving will fail", run_dir,
                     needed, available);
}

}  // namespace belay
