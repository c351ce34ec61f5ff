#pragma once
// A file that is written front to back under a temporary name beside its own, so that the final
// name only ever shows a complete file.

#include <cstddef>
#include <cstdint>
#include <string>

namespace belay {

class AtomicFile {
 public:
  // Error(data) when the directory does not take a new file.
  explicit AtomicFile(std::string path);
  // Without commit() nothing stays behind.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // Error(capacity) when the disk is full or a size limit is met, with the bytes written so far and
  // the free ones; Error(data) otherwise.
  void write(const void* data, std::size_t size);
  // Syncs, gives the file its name, and syncs the directory.
  void commit();

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] bool committed() const { return committed_; }

 private:
  [[noreturn]] void fail_write(int error) const;

  std::string path_;
  std::string temporary_;
  int fd_ = -1;
  bool committed_ = false;
  std::uint64_t bytes_ = 0;
};

}  // namespace belay
