#include "belay/snapshot/safetensors.h"

#include <fmt/ranges.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "belay/base/check.h"
#include "belay/base/error.h"

namespace belay {
namespace {

struct TypeFacts {
  std::string_view name;
  std::uint64_t bits;
};

constexpr std::array<TypeFacts, 22> kTypes = {
    {{"BOOL", 8},        {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
     {"I8", 8},          {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
     {"F8_E5M2FNUZ", 8}, {"I16", 16},    {"U16", 16},    {"F16", 16},    {"BF16", 16},
     {"I32", 32},        {"U32", 32},    {"F32", 32},    {"C64", 64},    {"F64", 64},
     {"I64", 64},        {"U64", 64}}};

// Sorts into file order, fills in the offsets and returns the header with its length in front.
std::string lay_out(std::vector<TensorInfo>& tensors,
                    const std::map<std::string, std::string>& metadata, const std::string& path) {
  std::sort(tensors.begin(), tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return a.dtype != b.dtype ? a.dtype > b.dtype : a.name < b.name;
  });
  const auto quoted = [](const std::string& text) { return nlohmann::json(text).dump(); };
  std::string header = "{";
  if (!metadata.empty()) {
    header += "\"__metadata__\":{";
    for (const auto& [key, value] : metadata) {
      if (header.back() != '{') header += ',';
      header += quoted(key) + ':' + quoted(value);
    }
    header += '}';
  }
  std::uint64_t offset = 0;
  std::unordered_map<std::string_view, bool> seen;
  for (TensorInfo& info : tensors) {
    const std::optional<std::uint64_t> bytes = stored_bytes(info.dtype, info.shape);
    if (!bytes || *bytes > UINT64_MAX - offset) {
      fail(ExitCode::data, "{}: tensor '{}': shape {} is too large to be written", path, info.name,
           shape_text(info.shape));
    }
    if (!seen.emplace(info.name, true).second) {
      fail(ExitCode::data, "{}: tensor '{}' would be written twice", path, info.name);
    }
    info.begin = offset;
    info.end = offset + *bytes;
    offset = info.end;
    if (header.size() > 1) header += ',';
    header += fmt::format("{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                          quoted(info.name), name_of(info.dtype), fmt::join(info.shape, ","),
                          info.begin, info.end);
  }
  header += '}';
  header.append((8 - header.size() % 8) % 8, ' ');
  const auto size = static_cast<std::uint64_t>(header.size());
  std::string prefix(8, '\0');
  for (std::size_t byte = 0; byte < 8; ++byte) {
    prefix[byte] = static_cast<char>(size >> (8 * byte) & 0xff);
  }
  return prefix + header;
}

}  // namespace

std::string_view name_of(StoredType type) {
  return kTypes[static_cast<std::size_t>(type)].name;
}

std::uint64_t bits_of(StoredType type) {
  return kTypes[static_cast<std::size_t>(type)].bits;
}

std::string shape_text(std::span<const std::uint64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

std::optional<std::uint64_t> stored_bytes(StoredType type, std::span<const std::uint64_t> shape) {
  std::uint64_t bits = bits_of(type);
  for (const std::uint64_t dim : shape) {
    if (__builtin_mul_overflow(bits, dim, &bits)) return std::nullopt;
  }
  if (bits % 8 != 0) return std::nullopt;
  return bits / 8;
}

SafetensorsFile::SafetensorsFile(MappedFile file, SafetensorsHeader header)
    : file_(std::move(file)), header_(std::move(header)) {
  for (std::size_t i = 0; i < header_.tensors.size(); ++i) index_[header_.tensors[i].name] = i;
}

SafetensorsFile SafetensorsFile::open(const std::string& path) {
  MappedFile file(path);
  SafetensorsHeader header = parse_safetensors(file.bytes(), path);
  return {std::move(file), std::move(header)};
}

const TensorInfo* SafetensorsFile::find(std::string_view name) const {
  const auto found = index_.find(std::string(name));
  return found == index_.end() ? nullptr : &header_.tensors[found->second];
}

std::span<const std::byte> SafetensorsFile::bytes(const TensorInfo& info) const {
  return file_.bytes().subspan(header_.data_begin + info.begin, info.bytes());
}

void SafetensorsFile::release(const TensorInfo& info) const {
  const std::span<const std::byte> part = bytes(info);
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  // Whole pages inside the tensor only: its neighbours may still be read.
  const auto begin = (reinterpret_cast<std::uintptr_t>(part.data()) + page - 1) / page * page;
  const auto end = reinterpret_cast<std::uintptr_t>(part.data() + part.size()) / page * page;
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

SafetensorsWriter::SafetensorsWriter(const std::string& path, std::vector<TensorInfo> tensors,
                                     const std::map<std::string, std::string>& metadata)
    : tensors_(std::move(tensors)), file_(path) {
  file_.append(lay_out(tensors_, metadata, path));
  data_bytes_ = tensors_.empty() ? 0 : tensors_.back().end;
}

void SafetensorsWriter::append(std::span<const std::byte> bytes) {
  appended_ += bytes.size();
  BELAY_CHECK(appended_ <= data_bytes_);
  file_.append(bytes);
}

void SafetensorsWriter::finish() {
  BELAY_CHECK(appended_ == data_bytes_);
  file_.finish();
}

std::uint64_t safetensors_file_bytes(std::vector<TensorInfo> tensors,
                                     const std::map<std::string, std::string>& metadata) {
  const std::size_t header = lay_out(tensors, metadata, "safetensors").size();
  return header + (tensors.empty() ? 0 : tensors.back().end);
}

}  // namespace belay
