#pragma once
// The safetensors file format: u64 header length, JSON header, tensors one after the other. Reading
// is strict: every refusal is Error(data) with its own cause and the tensor's name where there is
// one, and nothing is allocated from a number in the header. Writing gives the bytes of the
// reference writer (dtypes by falling rank, names rising, compact JSON padded to 8 bytes).

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "belay/base/mapped_file.h"
#include "belay/snapshot/output_file.h"

namespace belay {

// Every element type of the format, in its rank order.
enum class StoredType : std::uint8_t {
  boolean,
  f4,
  f6_e2m3,
  f6_e3m2,
  u8,
  i8,
  f8_e5m2,
  f8_e4m3,
  f8_e8m0,
  f8_e4m3fnuz,
  f8_e5m2fnuz,
  i16,
  u16,
  f16,
  bf16,
  i32,
  u32,
  f32,
  c64,
  f64,
  i64,
  u64
};

std::string_view name_of(StoredType type);  // "F32", "BF16", ...
std::uint64_t bits_of(StoredType type);

struct TensorInfo {
  std::string name;
  StoredType dtype = StoredType::f32;
  std::vector<std::uint64_t> shape;  // rank 0: one element
  std::uint64_t begin = 0;           // bytes, from the first byte after the header
  std::uint64_t end = 0;

  [[nodiscard]] std::uint64_t bytes() const { return end - begin; }
};

std::string shape_text(std::span<const std::uint64_t> shape);  // "[2, 3]"

// Bytes of a tensor; nothing when the product overflows or is not a whole number of bytes.
std::optional<std::uint64_t> stored_bytes(StoredType type, std::span<const std::uint64_t> shape);

struct SafetensorsHeader {
  std::vector<TensorInfo> tensors;  // in the order of their data
  std::map<std::string, std::string> metadata;
  std::uint64_t data_begin = 0;  // file offset of the first tensor's data
};

// Checks a whole file's bytes; `path` only appears in messages.
SafetensorsHeader parse_safetensors(std::span<const std::byte> file, const std::string& path);

class SafetensorsFile {
 public:
  static SafetensorsFile open(const std::string& path);

  [[nodiscard]] const std::string& path() const { return file_.path(); }
  [[nodiscard]] const std::vector<TensorInfo>& tensors() const { return header_.tensors; }
  [[nodiscard]] const std::map<std::string, std::string>& metadata() const {
    return header_.metadata;
  }
  // nullptr when there is none of that name.
  [[nodiscard]] const TensorInfo* find(std::string_view name) const;
  // May start at any address: load elements by memcpy.
  [[nodiscard]] std::span<const std::byte> bytes(const TensorInfo& info) const;
  // Says that the tensor will not be read again soon, so that reading a large file front to back
  // keeps the resident memory small.
  void release(const TensorInfo& info) const;

 private:
  SafetensorsFile(MappedFile file, SafetensorsHeader header);

  MappedFile file_;
  SafetensorsHeader header_;
  std::unordered_map<std::string, std::size_t> index_;
};

class SafetensorsWriter {
 public:
  // Sorts the tensors into file order (offsets are filled in here) and writes the header.
  // Error(data) when a name comes twice or a size overflows.
  SafetensorsWriter(const std::string& path, std::vector<TensorInfo> tensors,
                    const std::map<std::string, std::string>& metadata = {{"format", "pt"}});

  // In the order in which their data has to be appended.
  [[nodiscard]] const std::vector<TensorInfo>& tensors() const { return tensors_; }
  // The next bytes of the data, in pieces of any size.
  void append(std::span<const std::byte> bytes);
  // All data must have been appended. Syncs and gives the file its name.
  void finish();

  [[nodiscard]] std::uint64_t bytes() const { return file_.bytes(); }
  [[nodiscard]] std::uint64_t hash() const { return file_.hash(); }

 private:
  std::vector<TensorInfo> tensors_;
  std::uint64_t data_bytes_ = 0;
  std::uint64_t appended_ = 0;
  OutputFile file_;
};

// Size of the file that SafetensorsWriter would write.
std::uint64_t safetensors_file_bytes(std::vector<TensorInfo> tensors,
                                     const std::map<std::string, std::string>& metadata = {
                                         {"format", "pt"}});

}  // namespace belay
