#include "belay/base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

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
  // Closes now, so that a late write error is seen.
  int close() {
    const int result = ::close(fd_);
    fd_ = -1;
    return result;
  }

 private:
  int fd_;
};

std::string directory_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

[[noreturn]] void fail_write(const std::string& path, const std::string& temporary, int error) {
  ::unlink(temporary.c_str());
  fail(error == ENOSPC || error == EDQUOT ? ExitCode::capacity : ExitCode::data,
       "{}: cannot write: {}; check the directory and the free space", path, std::strerror(error));
}

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
  const std::string temporary = fmt::format("{}.tmp-{}", path, ::getpid());
  Descriptor file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (file.get() < 0) fail_write(path, temporary, errno);
  std::size_t done = 0;
  while (done < content.size()) {
    const ssize_t put = ::write(file.get(), content.data() + done, content.size() - done);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail_write(path, temporary, errno);
    done += static_cast<std::size_t>(put);
  }
  if (::fsync(file.get()) != 0 || file.close() != 0) fail_write(path, temporary, errno);
  if (::rename(temporary.c_str(), path.c_str()) != 0) fail_write(path, temporary, errno);
  const Descriptor directory(::open(directory_of(path).c_str(), O_RDONLY | O_CLOEXEC));
  if (directory.get() >= 0) ::fsync(directory.get());
}

}  // namespace belay
