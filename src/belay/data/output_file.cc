#include "belay/data/output_file.h"

#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <cstring>

#include "belay/base/check.h"
#include "belay/base/error.h"

namespace belay::data {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;

[[noreturn]] void refuse(const std::string& path) {
  const int reason = errno;
  const bool full = reason == ENOSPC || reason == EDQUOT;
  fail(full ? ExitCode::capacity : ExitCode::data, "{}: cannot write: {}", path,
       std::strerror(reason));
}

}  // namespace

struct OutputFile::Hash {
  XXH3_state_t* state = XXH3_createState();
  Hash() { XXH3_64bits_reset(state); }
  Hash(const Hash&) = delete;
  Hash& operator=(const Hash&) = delete;
  ~Hash() { XXH3_freeState(state); }
};

OutputFile::OutputFile(const std::string& path)
    : path_(path),
      file_(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)),
      hash_(std::make_unique<Hash>()) {
  if (file_ < 0) refuse(path_);
  buffer_.reserve(kBufferBytes);
}

OutputFile::~OutputFile() {
  if (file_ >= 0) ::close(file_);
}

void OutputFile::write(std::span<const std::byte> bytes) {
  XXH3_64bits_update(hash_->state, bytes.data(), bytes.size());
  while (!bytes.empty()) {
    const std::size_t part = std::min(bytes.size(), kBufferBytes - buffer_.size());
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(part));
    bytes = bytes.subspan(part);
    if (buffer_.size() == kBufferBytes) flush();
  }
}

void OutputFile::reserve_header(std::size_t bytes) {
  BELAY_CHECK(buffer_.empty() && bytes < kBufferBytes);
  buffer_.resize(bytes);
}

void OutputFile::flush() {
  std::span<const std::byte> rest = buffer_;
  while (!rest.empty()) {
    const ::ssize_t written = ::write(file_, rest.data(), rest.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      refuse(path_);
    }
    rest = rest.subspan(static_cast<std::size_t>(written));
  }
  buffer_.clear();
}

void OutputFile::finish(std::span<const std::byte> header) {
  flush();
  if (!header.empty() &&
      ::pwrite(file_, header.data(), header.size(), 0) != static_cast<::ssize_t>(header.size())) {
    refuse(path_);
  }
  if (::fsync(file_) != 0) refuse(path_);
  const int closed = ::close(file_);
  file_ = -1;
  if (closed != 0) refuse(path_);
}

std::uint64_t OutputFile::hash() const {
  return XXH3_64bits_digest(hash_->state);
}

void sync_directory(const std::string& directory) {
  const int file = ::open(directory.empty() ? "." : directory.c_str(), O_RDONLY | O_DIRECTORY);
  if (file < 0) refuse(directory);
  ::fsync(file);  // some file systems cannot, and there is nothing better to do then
  ::close(file);
}

}  // namespace belay::data
