#include "belay/snapshot/inspect.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "belay/base/error.h"
#include "belay/snapshot/convert.h"
#include "belay/snapshot/elements.h"
#include "belay/snapshot/hf_checkpoint.h"
#include "belay/snapshot/hf_config.h"
#include "belay/snapshot/llmc.h"
#include "belay/snapshot/manifest.h"
#include "belay/snapshot/snapshot_files.h"

namespace belay {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kChunk = std::size_t{1} << 14;  // elements

InspectedFile inspect_tensors(const std::string& path, bool norms) {
  const SafetensorsFile file = SafetensorsFile::open(path);
  InspectedFile result{fs::path(path).filename().string(), fs::file_size(path), {}};
  for (const TensorInfo& info : file.tensors()) {
    InspectedTensor tensor{info.name, info.dtype, info.shape, info.bytes(), std::nullopt};
    const std::optional<DType> dtype = weight_dtype(info.dtype);
    if (norms && dtype) {
      tensor.norms = tensor_norms(*dtype, file.bytes(info));
      file.release(info);
    }
    result.tensors.push_back(std::move(tensor));
  }
  return result;
}

void inspect_directory(const std::string& dir, bool norms, Inspection& result) {
  std::error_code error;
  result.kind = "hugging face";
  if (fs::exists(fs::path(dir) / kManifestFile, error)) {
    const Manifest manifest = read_manifest(dir);
    result.kind = manifest.kind;
    result.engine = manifest.engine;
    if (manifest.kind == "snapshot") result.state = load_snapshot_state(dir);
  }
  result.config = load_hf_config(dir);
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(dir)) {
    if (entry.is_regular_file(error)) names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) {
    const std::string path = fmt::format("{}/{}", dir, name);
    if (name.ends_with(".safetensors")) {
      result.files.push_back(inspect_tensors(path, norms));
    } else {
      result.files.push_back({name, fs::file_size(path), {}});
    }
  }
}

}  // namespace

TensorNorms tensor_norms(DType dtype, std::span<const std::byte> bytes) {
  TensorNorms norms;
  std::vector<float> values(kChunk);
  double sum = 0;
  const std::size_t count = bytes.size() / size_of(dtype);
  for (std::size_t done = 0; done < count; done += kChunk) {
    const std::span<float> chunk = std::span(values).first(std::min(kChunk, count - done));
    decode_elements(dtype, bytes.subspan(done * size_of(dtype), chunk.size() * size_of(dtype)),
                    chunk);
    for (const float value : chunk) {
      if (!std::isfinite(value)) {
        ++norms.non_finite;
        continue;
      }
      const auto x = static_cast<double>(value);
      sum += x * x;
      norms.max_abs = std::max(norms.max_abs, std::abs(x));
    }
  }
  norms.l2 = std::sqrt(sum);
  return norms;
}

Inspection inspect(const std::string& path, bool norms) {
  Inspection result;
  result.path = resolve_snapshot(path);
  std::error_code error;
  if (fs::is_directory(result.path, error)) {
    inspect_directory(result.path, norms, result);
  } else {
    const MappedFile file(result.path);
    if (is_llmc_model(file.bytes())) {
      result.kind = "llm.c";
      result.config = parse_llmc(file.bytes(), result.path).config;
      result.files.push_back({fs::path(result.path).filename().string(), file.bytes().size(), {}});
    } else {
      result.kind = "safetensors";
      result.files.push_back(inspect_tensors(result.path, norms));
    }
  }
  if (result.config) result.parameters = make_parameter_table(*result.config).parameter_count();
  return result;
}

}  // namespace belay
