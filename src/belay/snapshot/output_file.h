#pragma once
// A file being written front to back under a temporary name. finish() syncs it and gives it its
// name; without finish() nothing stays behind. The XXH3-64 hash of the content runs along, so that
// a manifest needs no second read.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace belay {

class OutputFile {
 public:
  // Error(data) when the directory does not take a new file.
  explicit OutputFile(std::string path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  // Error(capacity) when the disk is full or a size limit is met, with the bytes written so far and
  // the free ones; Error(data) otherwise.
  void append(std::span<const std::byte> bytes);
  void append(std::string_view text);
  // Flushes, syncs, renames, syncs the directory.
  void finish();

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  // Of everything appended so far.
  [[nodiscard]] std::uint64_t hash() const;

 private:
  void flush();
  void write_all(const std::byte* data, std::size_t size);
  [[noreturn]] void fail_write(int error) const;

  struct HashState;
  std::string path_;
  std::string temporary_;
  int fd_ = -1;
  bool finished_ = false;
  std::uint64_t bytes_ = 0;
  std::vector<std::byte> buffer_;
  std::unique_ptr<HashState> hash_;
};

struct WrittenFile {
  std::string name;  // without the directory
  std::uint64_t bytes = 0;
  std::uint64_t hash = 0;  // XXH3-64
};

WrittenFile write_text_file(const std::string& dir, std::string_view name, std::string_view text);
// Under the same name.
WrittenFile copy_file_into(const std::string& path, const std::string& dir);

// XXH3-64 of a byte range.
std::uint64_t hash_bytes(std::span<const std::byte> bytes);

// Makes renames inside a directory durable. Error(data) when it cannot be synced.
void sync_directory(const std::string& directory);

// Bytes that an unprivileged process can still write below a directory.
std::uint64_t free_bytes(const std::string& directory);

// The part of a path before the last '/', "." without one.
std::string directory_of(const std::string& path);

}  // namespace belay
