#include "belay/base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "belay/base/error.h"

namespace belay {

MappedFile::MappedFile(const std::string& path) : path_(path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) fail(ExitCode::data, "{}: cannot open: {}", path, std::strerror(errno));
  struct stat status {};
  if (::fstat(file, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(file);
    fail(ExitCode::data, "{}: not a regular file", path);
  }
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size == 0) {  // mmap refuses length 0; an empty span is what the caller will judge
    ::close(file);
    return;
  }
  void* memory = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file, 0);
  const int reason = errno;
  ::close(file);
  if (memory == MAP_FAILED) {
    fail(ExitCode::data, "{}: cannot map {} bytes: {}", path, size, std::strerror(reason));
  }
  bytes_ = {static_cast<const std::byte*>(memory), size};
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace belay
