#pragma once
// OutputFile: buffered sequential writing with a running XXH3, for files too large to hold. It
// writes to the name it is given; publishing under a final name is the caller's part.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace belay::data {

class OutputFile {
 public:
  // Creates or truncates. Error(data) names the path and the reason; Error(capacity) for a full
  // disk, here and below.
  explicit OutputFile(const std::string& path);
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();

  void write(std::span<const std::byte> bytes);
  // Reserves bytes at the front that the hash does not cover, to be set by finish().
  void reserve_header(std::size_t bytes);
  // Writes what is buffered and the header, syncs to the disk and closes.
  void finish(std::span<const std::byte> header = {});
  [[nodiscard]] std::uint64_t hash() const;  // of everything given to write() so far
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  void flush();

  struct Hash;
  std::string path_;
  int file_ = -1;
  std::vector<std::byte> buffer_;
  std::unique_ptr<Hash> hash_;
};

// Makes renames and creations inside `directory` durable.
void sync_directory(const std::string& directory);

}  // namespace belay::data
