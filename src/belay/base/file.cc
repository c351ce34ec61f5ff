#include "belay/base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "belay/base/atomic_file.h"
#include "belay/base/error.h"

namespace belay {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  [[nodiscard]] int get() const { return fd_; }

 private:
  int fd_;
};

}  // namespace

std::string read_file(const std::string& path, std::int64_t limit) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) fail(ExitCode::data, "{}: cannot open: {}", path, std::strerror(errno));
  struct stat status {};
  if (::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) {
    fail(ExitCode::data, "{}: not a regular file", path);
  }
  if (status.st_size > limit) {
    fail(ExitCode::data, "{}: {} bytes, but at most {} are expected of such a file", path,
         status.st_size, limit);
  }
  std::string content(static_cast<std::size_t>(status.st_size), '\0');
  std::size_t done = 0;
  while (done < content.size()) {
    const ssize_t got = ::read(file.get(), content.data() + done, content.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(ExitCode::data, "{}: cannot read: {}", path, std::strerror(errno));
    if (got == 0) break;  // it shrank while being read
    done += static_cast<std::size_t>(got);
  }
  content.resize(done);
  return content;
}

void write_file(const std::string& path, std::string_view content) {
  AtomicFile file(path);
  file.write(content.data(), content.size());
  file.commit();
}

void sync_directory(const std::string& directory) {
  const int fd = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) fail(ExitCode::data, "{}: cannot open: {}", directory, std::strerror(errno));
  // Some file systems cannot sync a directory and say so with EINVAL; they have nothing to lose.
  const int result = ::fsync(fd);
  const int error = errno;
  ::close(fd);
  if (result != 0 && error != EINVAL) {
    fail(ExitCode::data, "{}: cannot sync: {}", directory, std::strerror(error));
  }
}

std::uint64_t free_bytes(const std::string& directory) {
  struct statvfs status {};
  if (::statvfs(directory.c_str(), &status) != 0) {
    fail(ExitCode::data, "{}: cannot ask for the free space: {}", directory, std::strerror(errno));
  }
  return static_cast<std::uint64_t>(status.f_bavail) * status.f_frsize;
}

std::string directory_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace belay
