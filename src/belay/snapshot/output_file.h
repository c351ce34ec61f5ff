#pragma once
// An AtomicFile written through a buffer. The XXH3-64 hash of the content runs along, so that a
// manifest needs no second read.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "belay/base/atomic_file.h"

namespace belay {

class OutputFile {
 public:
  // Errors are those of AtomicFile.
  explicit OutputFile(const std::string& path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void append(std::span<const std::byte> bytes);
  void append(std::string_view text);
  // Gives the file its name; without it nothing stays behind.
  void finish();

  [[nodiscard]] const std::string& path() const { return file_.path(); }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  // Of everything appended so far.
  [[nodiscard]] std::uint64_t hash() const;

 private:
  void flush();

  struct HashState;
  AtomicFile file_;
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

}  // namespace belay
