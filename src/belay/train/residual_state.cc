#include "belay/train/residual_state.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <utility>

#include "belay/base/error.h"
#include "belay/base/file.h"
#include "belay/snapshot/elements.h"
#include "belay/snapshot/safetensors.h"
#include "belay/snapshot/snapshot_files.h"

namespace belay {
namespace {

namespace fs = std::filesystem;

// Sent at a time: memory that ranks do not share is copied on the way.
constexpr std::size_t kPieceElements = std::size_t{1} << 20;
constexpr double kMostRanks = 1 << 20;

std::string tensor_name(int rank, std::string_view parameter) {
  return fmt::format("rank-{:05}/{}", rank, parameter);
}

std::vector<TensorInfo> tensors_of(const Residuals& residuals, int ranks) {
  std::vector<TensorInfo> tensors;
  const ParameterTable& table = residuals.table();
  for (int rank = 0; rank < ranks; ++rank) {
    for (int index = 0; index < table.size(); ++index) {
      if (!residuals.has(index)) continue;
      tensors.push_back({tensor_name(rank, table[index].name),
                         StoredType::f32,
                         {static_cast<std::uint64_t>(table[index].elements())},
                         0,
                         0});
    }
  }
  return tensors;
}

std::map<std::string, std::string> metadata_of(const Residuals& residuals, int ranks) {
  return {{"format", "pt"},
          {"ranks", std::to_string(ranks)},
          {"unit", fmt::format("{}", residuals.unit())}};
}

std::string file_in(const std::string& dir) {
  return (fs::path(dir) / kResidualsFile).string();
}

// The file's numbers about itself.
double number_of(const SafetensorsFile& file, const std::string& key) {
  const auto entry = file.metadata().find(key);
  const char* const text = entry == file.metadata().end() ? "" : entry->second.c_str();
  char* end = nullptr;
  const double value = std::strtod(text, &end);
  if (end == text || *end != '\0' || !(value > 0)) {
    fail(ExitCode::data, "{}: the metadata has {} = '{}', which is not a number above zero",
         file.path(), key, text);
  }
  return value;
}

}  // namespace

ResidualFile::ResidualFile(const RankGroup& ranks, const Residuals& residuals, std::string path)
    : path_(std::move(path)) {
  write(ranks, residuals);
}

ResidualFile::~ResidualFile() {
  std::error_code error;
  if (!path_.empty() && file_.bytes > 0) fs::remove(path_, error);
}

ResidualFile::ResidualFile(ResidualFile&& other) noexcept
    : path_(std::exchange(other.path_, {})),
      file_(std::exchange(other.file_, {})),
      failure_(std::exchange(other.failure_, nullptr)) {}

void ResidualFile::write(const RankGroup& ranks, const Residuals& residuals) {
  std::optional<SafetensorsWriter> writer;
  const auto at_first = [&](const auto& body) {
    if (!ranks.first() || failure_) return;
    try {
      body();
    } catch (...) {
      failure_ = std::make_exception_ptr(current_error());
    }
  };
  at_first([&] {
    require_snapshot_space(directory_of(path_), residuals.table(),
                           residual_file_bytes(residuals, ranks.size()));
    writer.emplace(path_, tensors_of(residuals, ranks.size()),
                   metadata_of(residuals, ranks.size()));
  });
  // Names rise with the rank, then with the parameter's name: the order that the file wants.
  std::map<std::string, int> by_name;
  for (int index = 0; index < residuals.table().size(); ++index) {
    if (residuals.has(index)) by_name[residuals.table()[index].name] = index;
  }
  std::vector<float> values;
  for (int rank = 0; rank < ranks.size(); ++rank) {
    for (const auto& [name, index] : by_name) {
      values.resize(static_cast<std::size_t>(residuals.table()[index].elements()));
      if (ranks.rank() == rank) residuals.read(index, residuals.unit(), values);
      for (std::size_t begin = 0; rank > 0 && begin < values.size(); begin += kPieceElements) {
        const std::size_t count = std::min(kPieceElements, values.size() - begin);
        ranks.communicator()->broadcast(values.data() + begin, values.data() + begin,
                                        static_cast<std::int64_t>(count), DType::f32, rank);
      }
      at_first([&] { writer->append(std::as_bytes(std::span<const float>(values))); });
    }
  }
  at_first([&] {
    writer->finish();
    file_ = {std::string(kResidualsFile), writer->bytes(), writer->hash()};
  });
}

void ResidualFile::attach_to(SnapshotOptions& options) const {
  if (failure_) std::rethrow_exception(failure_);
  if (file_.bytes > 0) options.attachments.push_back({path_, file_});
}

std::uint64_t residual_file_bytes(const Residuals& residuals, int ranks) {
  return safetensors_file_bytes(tensors_of(residuals, ranks), metadata_of(residuals, ranks));
}

bool has_residuals(const std::string& dir) {
  std::error_code error;
  return fs::exists(file_in(dir), error);
}

int load_residuals(const std::string& dir, const RankGroup& ranks, Residuals& residuals) {
  if (!has_residuals(dir)) return 0;
  const std::string path = file_in(dir);
  const SafetensorsFile file = SafetensorsFile::open(path);
  const double count = number_of(file, "ranks");
  if (count > kMostRanks)
    fail(ExitCode::data, "{}: ranks = {} is not a number of ranks", path, count);
  const auto wrote = static_cast<int>(count);
  const double unit = number_of(file, "unit");
  std::vector<float> values;
  for (int index = 0; index < residuals.table().size(); ++index) {
    if (!residuals.has(index)) continue;
    const Parameter& parameter = residuals.table()[index];
    const auto elements = static_cast<std::uint64_t>(parameter.elements());
    for (int rank = ranks.rank(); rank < wrote; rank += ranks.size()) {
      const std::string name = tensor_name(rank, parameter.name);
      const TensorInfo* const info = file.find(name);
      if (info == nullptr) continue;  // not compressed then
      if (info->dtype != StoredType::f32 || info->shape != std::vector<std::uint64_t>{elements}) {
        fail(ExitCode::data, "{}: tensor '{}' is {} {}, the model needs F32 [{}]", path, name,
             name_of(info->dtype), shape_text(info->shape), elements);
      }
      values.resize(elements);
      decode_elements(DType::f32, file.bytes(*info), values);
      if (rank == ranks.rank()) {
        residuals.write(index, unit, values);
      } else {
        residuals.add(index, unit, values);
      }
    }
  }
  return wrote;
}

}  // namespace belay
