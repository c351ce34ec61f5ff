#include "belay/observe/append_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "belay/base/error.h"

namespace belay {

AppendFile::AppendFile(std::string path) : path_(std::move(path)) {
  descriptor_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (descriptor_ < 0) {
    fail(ExitCode::data, "cannot open {} for writing: {}", path_, std::strerror(errno));
  }
}

AppendFile::~AppendFile() {
  close(descriptor_);
}

void AppendFile::append(std::string_view record) {
  while (!record.empty()) {
    const ssize_t written = write(descriptor_, record.data(), record.size());
    if (written >= 0) {
      record.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno != EINTR) {
      const bool full = errno == ENOSPC || errno == EDQUOT;
      fail(full ? ExitCode::capacity : ExitCode::data, "cannot write {} bytes to {}: {}",
           record.size(), path_, std::strerror(errno));
    }
  }
}

}  // namespace belay
