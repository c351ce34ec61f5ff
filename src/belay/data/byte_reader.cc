#include "belay/data/byte_reader.h"

#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <vector>

#include "belay/base/error.h"

namespace belay::data {
namespace {

class PlainReader final : public ByteReader {
 public:
  explicit PlainReader(const std::string& path)
      : path_(path), file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (file_ < 0) fail(ExitCode::data, "{}: cannot open: {}", path, std::strerror(errno));
  }
  ~PlainReader() override { ::close(file_); }

  std::size_t read(std::span<char> out) override {
    for (;;) {
      const ::ssize_t count = ::read(file_, out.data(), out.size());
      if (count >= 0) return static_cast<std::size_t>(count);
      if (errno != EINTR) fail(ExitCode::data, "{}: cannot read: {}", path_, std::strerror(errno));
    }
  }

 private:
  std::string path_;
  int file_;
};

class GzipReader final : public ByteReader {
 public:
  explicit GzipReader(const std::string& path) : path_(path), file_(::gzopen(path.c_str(), "rb")) {
    if (file_ == nullptr) fail(ExitCode::data, "{}: cannot open: {}", path, std::strerror(errno));
    ::gzbuffer(file_, 1U << 18);
  }
  ~GzipReader() override { ::gzclose(file_); }

  std::size_t read(std::span<char> out) override {
    constexpr std::size_t kMost = std::numeric_limits<int>::max();
    const int count =
        ::gzread(file_, out.data(), static_cast<unsigned>(std::min(out.size(), kMost)));
    // A file that ends inside a member is told only by gzerror, after its last good bytes.
    int code = Z_OK;
    const char* reason = ::gzerror(file_, &code);
    if (count < 0 || (count == 0 && code != Z_OK && code != Z_STREAM_END)) {
      fail(ExitCode::data, "{}: does not decompress: {}", path_,
           code == Z_BUF_ERROR ? "the file is truncated" : reason);
    }
    if (count == 0 && ::gzdirect(file_) == 1 && ::gztell(file_) > 0) {
      fail(ExitCode::data, "{}: is named .gz but is not gzip data", path_);
    }
    return static_cast<std::size_t>(count);
  }

 private:
  std::string path_;
  ::gzFile file_;
};

class ZstdReader final : public ByteReader {
 public:
  explicit ZstdReader(const std::string& path)
      : path_(path),
        source_(path),
        context_(::ZSTD_createDCtx()),
        buffer_(::ZSTD_DStreamInSize()) {}
  ~ZstdReader() override { ::ZSTD_freeDCtx(context_); }

  std::size_t read(std::span<char> out) override {
    ZSTD_outBuffer output{out.data(), out.size(), 0};
    while (output.pos == 0) {
      if (input_.pos == input_.size) {
        input_ = {buffer_.data(), source_.read(buffer_), 0};
        if (input_.size == 0) {
          if (inside_frame_) {
            fail(ExitCode::data, "{}: does not decompress: the file is truncated", path_);
          }
          return 0;
        }
      }
      const std::size_t result = ::ZSTD_decompressStream(context_, &output, &input_);
      if (::ZSTD_isError(result) != 0) {
        fail(ExitCode::data, "{}: does not decompress: {}", path_, ::ZSTD_getErrorName(result));
      }
      inside_frame_ = result != 0;
    }
    return output.pos;
  }

 private:
  std::string path_;
  PlainReader source_;
  ::ZSTD_DCtx* context_;
  std::vector<char> buffer_;
  ZSTD_inBuffer input_{nullptr, 0, 0};
  bool inside_frame_ = false;
};

}  // namespace

std::unique_ptr<ByteReader> open_reader(const std::string& path) {
  if (path.ends_with(".gz")) return std::make_unique<GzipReader>(path);
  if (path.ends_with(".zst")) return std::make_unique<ZstdReader>(path);
  return std::make_unique<PlainReader>(path);
}

std::string without_compression(const std::string& path) {
  for (const char* suffix : {".gz", ".zst"}) {
    if (path.ends_with(suffix)) return path.substr(0, path.size() - std::strlen(suffix));
  }
  return path;
}

}  // namespace belay::data
