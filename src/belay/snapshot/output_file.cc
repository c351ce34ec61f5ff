#include "belay/snapshot/output_file.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "belay/base/check.h"
#include "belay/base/error.h"
#include "belay/base/mapped_file.h"

namespace belay {
namespace {

constexpr std::size_t kBuffer = std::size_t{1} << 18;

}  // namespace

struct OutputFile::HashState {
  HashState() { XXH3_64bits_reset(state.get()); }
  struct Free {
    void operator()(XXH3_state_t* pointer) const { XXH3_freeState(pointer); }
  };
  std::unique_ptr<XXH3_state_t, Free> state{XXH3_createState()};
};

OutputFile::OutputFile(std::string path)
    : path_(std::move(path)),
      temporary_(fmt::format("{}.tmp-{}", path_, ::getpid())),
      hash_(std::make_unique<HashState>()) {
  buffer_.reserve(kBuffer);
  fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd_ < 0) fail_write(errno);
}

OutputFile::~OutputFile() {
  if (fd_ >= 0) ::close(fd_);
  if (!finished_) ::unlink(temporary_.c_str());
}

void OutputFile::fail_write(int error) const {
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) {
    fail(ExitCode::capacity,
         "{}: no room to write after {} bytes: {}; {} bytes are free in {}; free some space or "
         "choose another directory",
         path_, bytes_ - buffer_.size(), std::strerror(error), free_bytes(directory_of(path_)),
         directory_of(path_));
  }
  fail(ExitCode::data, "{}: cannot write: {}; check the directory and its permissions", path_,
       std::strerror(error));
}

void OutputFile::write_all(const std::byte* data, std::size_t size) {
  while (size > 0) {
    const ssize_t put = ::write(fd_, data, size);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail_write(errno);
    data += put;
    size -= static_cast<std::size_t>(put);
  }
}

void OutputFile::flush() {
  write_all(buffer_.data(), buffer_.size());
  buffer_.clear();
}

void OutputFile::append(std::span<const std::byte> bytes) {
  BELAY_CHECK(fd_ >= 0);
  XXH3_64bits_update(hash_->state.get(), bytes.data(), bytes.size());
  bytes_ += bytes.size();
  if (buffer_.size() + bytes.size() > kBuffer) flush();
  if (bytes.size() >= kBuffer) {
    write_all(bytes.data(), bytes.size());
  } else {
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  }
}

void OutputFile::append(std::string_view text) {
  append(std::as_bytes(std::span(text.data(), text.size())));
}

void OutputFile::finish() {
  BELAY_CHECK(fd_ >= 0);
  flush();
  if (::fsync(fd_) != 0) fail_write(errno);
  if (::close(std::exchange(fd_, -1)) != 0) fail_write(errno);
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) fail_write(errno);
  finished_ = true;
  sync_directory(directory_of(path_));
}

std::uint64_t OutputFile::hash() const {
  return XXH3_64bits_digest(hash_->state.get());
}

WrittenFile write_text_file(const std::string& dir, std::string_view name, std::string_view text) {
  OutputFile file(fmt::format("{}/{}", dir, name));
  file.append(text);
  file.finish();
  return {std::string(name), file.bytes(), file.hash()};
}

WrittenFile copy_file_into(const std::string& path, const std::string& dir) {
  const MappedFile source(path);
  const std::string name = path.substr(path.rfind('/') + 1);
  OutputFile file(dir + "/" + name);
  file.append(source.bytes());
  file.finish();
  return {name, file.bytes(), file.hash()};
}

std::uint64_t hash_bytes(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
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
