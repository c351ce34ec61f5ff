#pragma once
// A directory written under a temporary name, NAME.tmp-PID, and given its name only when complete.

#include <string>
#include <vector>

namespace belay {

class DirectoryWriter {
 public:
  enum class Existing { refuse, replace };

  // Creates parents as needed. With Existing::refuse: Error(usage) when `path` exists.
  DirectoryWriter(std::string path, Existing existing);
  ~DirectoryWriter();  // without finish(): removes the temporary directory
  DirectoryWriter(const DirectoryWriter&) = delete;
  DirectoryWriter& operator=(const DirectoryWriter&) = delete;

  // Where to put the files now.
  [[nodiscard]] const std::string& temporary() const { return temporary_; }
  // Syncs, renames (exchanging names with an existing directory, which then goes), syncs the
  // parent.
  void finish();

 private:
  std::string path_;
  std::string temporary_;
  Existing existing_;
  bool finished_ = false;
};

// The process id in a temporary name, 0 when the name is not a temporary one.
int process_of_temporary(const std::string& name);

}  // namespace belay
