#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>

#include "belay/base/check.h"
#include "belay/base/error.h"
#include "belay/snapshot/elements.h"
#include "belay/snapshot/hf_checkpoint.h"
#include "belay/snapshot/hf_weights.h"

namespace belay {
namespace {

struct Place {
  int parameter;
  std::size_t part;
};

struct Shard {
  std::vector<TensorInfo> tensors;
  std::uint64_t bytes = 0;
};

class Exporter {
 public:
  Exporter(const ParameterTable& table, const ParameterReader& source, DType dtype)
      : table_(table), source_(source), dtype_(dtype) {}

  // Greedy, in the table's order; a tensor above the limit has a shard of its own.
  std::vector<Shard> split(std::uint64_t limit) {
    std::vector<Shard> shards(1);
    for (int index = 0; index < table_.size(); ++index) {
      const Parameter& parameter = table_[index];
      for (std::size_t part = 0; part < parameter.hf.size(); ++part) {
        TensorInfo info;
        info.name = parameter.hf[part].name;
        info.dtype = stored_type(dtype_);
        info.shape = part_shape(parameter, parameter.hf[part]);
        const std::optional<std::uint64_t> bytes = stored_bytes(info.dtype, info.shape);
        BELAY_CHECK(bytes.has_value());
        if (!shards.back().tensors.empty() && shards.back().bytes + *bytes > limit) {
          shards.emplace_back();
        }
        places_[info.name] = {index, part};
        shards.back().bytes += *bytes;
        shards.back().tensors.push_back(std::move(info));
      }
    }
    return shards;
  }

  WrittenFile write(const std::string& dir, const std::string& name, Shard shard) {
    SafetensorsWriter writer(dir + "/" + name, std::move(shard.tensors));
    for (const TensorInfo& info : writer.tensors()) {
      const Place& place = places_.at(info.name);
      const Parameter& parameter = table_[place.parameter];
      fetch(place.parameter);
      write_part(parameter, parameter.hf[place.part], dtype_, values_,
                 [&](std::span<const std::byte> bytes) { writer.append(bytes); });
    }
    writer.finish();
    return {name, writer.bytes(), writer.hash()};
  }

 private:
  // Parts of one parameter are often neighbours in the file; the last parameter is kept.
  void fetch(int index) {
    if (index == fetched_) return;
    values_.resize(static_cast<std::size_t>(table_[index].elements()));
    source_(index, values_);
    fetched_ = index;
  }

  const ParameterTable& table_;
  const ParameterReader& source_;
  DType dtype_;
  std::unordered_map<std::string, Place> places_;
  std::vector<float> values_;
  int fetched_ = -1;
};

}  // namespace

std::vector<WrittenFile> export_weights(const std::string& dir, const ParameterTable& table,
                                        const ParameterReader& source, DType dtype,
                                        std::uint64_t max_shard_bytes) {
  Exporter exporter(table, source, dtype);
  std::vector<Shard> shards = exporter.split(max_shard_bytes);
  std::vector<WrittenFile> files;
  if (shards.size() == 1) {
    files.push_back(exporter.write(dir, std::string(kWeightsFile), std::move(shards.front())));
    return files;
  }
  nlohmann::json weight_map;
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const std::string name = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    for (const TensorInfo& info : shards[i].tensors) weight_map[info.name] = name;
    total += shards[i].bytes;
    files.push_back(exporter.write(dir, name, std::move(shards[i])));
  }
  const nlohmann::json index = {
      {"metadata", {{"total_parameters", table.parameter_count()}, {"total_size", total}}},
      {"weight_map", weight_map}};
  OutputFile file(dir + "/" + std::string(kIndexFile));
  file.append(index.dump(2) + "\n");
  file.finish();
  files.push_back({std::string(kIndexFile), file.bytes(), file.hash()});
  return files;
}

}  // namespace belay
