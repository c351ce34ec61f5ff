#pragma once
// AppendFile: a file that grows by whole records, each handed to the system at once.

#include <string>
#include <string_view>

namespace belay {

class AppendFile {
 public:
  // Creates or continues the file. Throws Error(data).
  explicit AppendFile(std::string path);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  // Throws Error(capacity) when the disk is full, Error(data) otherwise. Allocates nothing.
  void append(std::string_view record);

 private:
  std::string path_;
  int descriptor_ = -1;
};

}  // namespace belay
