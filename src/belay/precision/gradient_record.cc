#include "belay/precision/gradient_record.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <optional>

#include "belay/base/check.h"
#include "belay/base/error.h"
#include "belay/base/file.h"
#include "belay/base/log.h"

namespace belay {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::string_view kMagic = "belay gradient norms 1\n";
constexpr std::size_t kEntryHead = 6;
constexpr std::int64_t kLargestFile = std::int64_t{1} << 33;

template <class T>
void put(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

std::size_t entry_bytes(std::size_t layers) {
  return kEntryHead + layers * sizeof(NormCode);
}

std::string header_of(std::span<const std::string> layers, double limit) {
  std::string bytes(kMagic);
  put(bytes, static_cast<std::uint32_t>(layers.size()));
  put(bytes, std::uint32_t{0});
  put(bytes, limit);
  for (const std::string& name : layers) {
    put(bytes, static_cast<std::uint16_t>(name.size()));
    bytes += name;
  }
  return bytes;
}

// Reads front to back; never past the end.
class Bytes {
 public:
  Bytes(std::string_view bytes, const std::string& source) : rest_(bytes), source_(source) {}
  std::string_view take(std::size_t count) {
    if (count > rest_.size()) {
      fail(ExitCode::data, "{}: not a record of gradient norms: it ends within its header",
           source_);
    }
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return taken;
  }
  template <class T>
  T value() {
    T result;
    std::memcpy(&result, take(sizeof result).data(), sizeof result);
    return result;
  }
  [[nodiscard]] std::size_t left() const { return rest_.size(); }

 private:
  std::string_view rest_;
  const std::string& source_;
};

}  // namespace

GradientRecord parse_gradient_record(std::string_view bytes, const std::string& source) {
  if (!bytes.starts_with(kMagic)) {
    fail(ExitCode::data, "{}: not a record of gradient norms", source);
  }
  Bytes reader(bytes.substr(kMagic.size()), source);
  const auto layers = reader.value<std::uint32_t>();
  reader.value<std::uint32_t>();
  GradientRecord record;
  record.limit = reader.value<double>();
  if (layers == 0 || layers > reader.left() / sizeof(std::uint16_t)) {
    fail(ExitCode::data, "{}: claims {} layers, which its {} bytes cannot hold", source, layers,
         bytes.size());
  }
  for (std::uint32_t layer = 0; layer < layers; ++layer) {
    const auto length = reader.value<std::uint16_t>();
    record.layers.emplace_back(reader.take(length));
  }
  if (!(record.limit > 0)) {
    fail(ExitCode::data, "{}: the head room {} is not positive", source, record.limit);
  }
  while (reader.left() >= entry_bytes(layers)) {
    const auto step = static_cast<std::int64_t>(reader.value<std::uint32_t>());
    if (!record.steps.empty() && step <= record.steps.back()) {
      fail(ExitCode::data, "{}: step {} follows step {}; the file is damaged", source, step,
           record.steps.back());
    }
    record.steps.push_back(step);
    record.log2_scale.push_back(reader.value<std::int16_t>());
    const std::size_t at = record.codes.size();
    record.codes.resize(at + layers);
    const std::string_view codes = reader.take(layers * sizeof(NormCode));
    std::memcpy(record.codes.data() + at, codes.data(), codes.size());
  }
  return record;
}

GradientRecord read_gradient_record(const std::string& path) {
  return parse_gradient_record(read_file(path, kLargestFile), path);
}

namespace {

// Bytes of an existing file that stay, or nothing when it cannot be continued.
std::optional<std::uintmax_t> kept_bytes(const std::string& path, const std::string& header,
                                         std::size_t entry, std::int64_t resumed_step) {
  const std::string bytes = read_file(path, kLargestFile);
  if (!bytes.starts_with(header)) return std::nullopt;
  std::size_t count = (bytes.size() - header.size()) / entry;
  while (count > 0) {
    std::uint32_t step = 0;
    std::memcpy(&step, bytes.data() + header.size() + (count - 1) * entry, sizeof step);
    if (static_cast<std::int64_t>(step) <= resumed_step) break;
    --count;
  }
  return header.size() + count * entry;
}

}  // namespace

GradientRecordWriter::GradientRecordWriter(const std::string& path,
                                           std::span<const std::string> layers, double limit,
                                           std::int64_t resumed_step) {
  const std::string header = header_of(layers, limit);
  std::optional<std::uintmax_t> kept;
  if (std::filesystem::exists(path)) {
    kept = kept_bytes(path, header, entry_bytes(layers.size()), resumed_step);
    if (!kept) log::warn("{} is not this run's record of gradient norms: begun anew", path);
    std::error_code error;
    std::filesystem::resize_file(path, kept.value_or(0), error);
    if (error) fail(ExitCode::data, "cannot rewind {}: {}", path, error.message());
  }
  file_ = std::make_unique<AppendFile>(path);
  if (!kept) file_->append(header);
  entry_.reserve(entry_bytes(layers.size()));
}

void GradientRecordWriter::append(std::int64_t step, double scale, std::span<const double> norms) {
  entry_.clear();
  put(entry_, static_cast<std::uint32_t>(step));
  put(entry_, static_cast<std::int16_t>(std::lround(std::log2(scale))));
  for (const double norm : norms) put(entry_, norm_code(norm));
  file_->append(entry_);
}

}  // namespace belay
