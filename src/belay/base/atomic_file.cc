#include "belay/base/atomic_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "belay/base/check.h"
#include "belay/base/error.h"
#include "belay/base/file.h"

namespace belay {

AtomicFile::AtomicFile(std::string path)
    : path_(std::move(path)), temporary_(fmt::format("{}.tmp-{}", path_, ::getpid())) {
  fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd_ < 0) fail_write(errno);
}

AtomicFile::~AtomicFile() {
  if (fd_ >= 0) ::close(fd_);
  if (!committed_) ::unlink(temporary_.c_str());
}

void AtomicFile::fail_write(int error) const {
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) {
    const std::string directory = directory_of(path_);
    fail(ExitCode::capacity,
         "{}: no room to write after {} bytes: {}; {} bytes are free in {}; free some space or "
         "choose another directory",
         path_, bytes_, std::strerror(error), free_bytes(directory), directory);
  }
  fail(ExitCode::data, "{}: cannot write: {}; check the directory and its permissions", path_,
       std::strerror(error));
}

void AtomicFile::write(const void* data, std::size_t size) {
  BELAY_CHECK(fd_ >= 0);
  const auto* next = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t put = ::write(fd_, next, size);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail_write(errno);
    next += put;
    size -= static_cast<std::size_t>(put);
    bytes_ += static_cast<std::size_t>(put);
  }
}

void AtomicFile::commit() {
  BELAY_CHECK(fd_ >= 0);
  if (::fsync(fd_) != 0) fail_write(errno);
  if (::close(std::exchange(fd_, -1)) != 0) fail_write(errno);
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) fail_write(errno);
  committed_ = true;
  sync_directory(directory_of(path_));
}

}  // namespace belay
