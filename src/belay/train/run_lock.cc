#include "belay/train/run_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "belay/base/error.h"

namespace belay {

RunLock::RunLock(const std::string& run_dir) {
  const std::string path = run_dir + "/lock";
  file_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (file_ < 0) fail(ExitCode::data, "{}: cannot open: {}", path, std::strerror(errno));
  if (::flock(file_, LOCK_EX | LOCK_NB) != 0) {
    std::array<char, 32> holder{};
    const ::ssize_t count = ::pread(file_, holder.data(), holder.size() - 1, 0);
    ::close(file_);
    fail(ExitCode::usage,
         "{} is in use by the training of process {}; wait for it or choose "
         "another --out",
         run_dir, count > 0 ? holder.data() : "?");
  }
  const std::string pid = std::to_string(::getpid());
  if (::ftruncate(file_, 0) != 0 ||
      ::pwrite(file_, pid.data(), pid.size(), 0) != static_cast<::ssize_t>(pid.size())) {
    const int reason = errno;
    ::close(file_);
    fail(ExitCode::capacity, "{}: cannot write: {}", path, std::strerror(reason));
  }
}

RunLock::~RunLock() {
  ::close(file_);
}

}  // namespace belay
