#pragma once
// A file mapped read-only into memory. The mapping outlives the directory entry: a file that is
// renamed or removed stays readable until the object goes.

#include <cstddef>
#include <span>
#include <string>

namespace belay {

class MappedFile {
 public:
  MappedFile() = default;
  // Error(data) names the path and the system's reason.
  explicit MappedFile(const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::span<const std::byte> bytes_;
};

}  // namespace belay
