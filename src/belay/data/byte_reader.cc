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

// zlib's own gzread takes whatever follows a member for padding and drops it in silence; here every
// byte belongs to a member, except zeros at the end.
class GzipReader final : public ByteReader {
 public:
  explicit GzipReader(const std::string& path)
      : path_(path), source_(path), buffer_(std::size_t{1} << 18) {
    constexpr int kGzipWindow = 15 + 16;
    if (::inflateInit2(&stream_, kGzipWindow) != Z_OK) {
      fail(ExitCode::capacity, "{}: no memory to decompress", path);
    }
  }
  ~GzipReader() override { ::inflateEnd(&stream_); }

  std::size_t read(std::span<char> out) override {
    constexpr std::size_t kMost = std::numeric_limits<unsigned>::max();
    const auto room = static_cast<unsigned>(std::min(out.size(), kMost));
    stream_.next_out = reinterpret_cast<Bytef*>(out.data());
    stream_.avail_out = room;
    while (stream_.avail_out == room) {
      if (stream_.avail_in == 0 && !fill()) return 0;
      if (!inside_member_ && at_padding()) return 0;
      inside_member_ = true;
      const int code = ::inflate(&stream_, Z_NO_FLUSH);
      if (code == Z_STREAM_END) {
        inside_member_ = false;
        ::inflateReset(&stream_);
      } else if (code != Z_OK) {
        if (stream_.total_out == 0 && stream_.total_in <= 2) {
          fail(ExitCode::data, "{}: byte {} does not begin gzip data", path_,
               read_ - stream_.avail_in - stream_.total_in);
        }
        fail(ExitCode::data, "{}: does not decompress near byte {}: {}", path_,
             read_ - stream_.avail_in,
             stream_.msg != nullptr ? stream_.msg : "the data are damaged");
      }
    }
    return room - stream_.avail_out;
  }

 private:
  // False at the end of the file.
  bool fill() {
    const std::size_t count = source_.read(buffer_);
    if (count == 0 && (inside_member_ || read_ == 0)) {
      fail(ExitCode::data, "{}: does not decompress: the file is truncated", path_);
    }
    read_ += count;
    stream_.next_in = reinterpret_cast<Bytef*>(buffer_.data());
    stream_.avail_in = static_cast<unsigned>(count);
    return count != 0;
  }
  // True when only zeros are left, which some archivers append.
  bool at_padding() {
    if (read_ == stream_.avail_in) return false;  // the first member
    do {
      while (stream_.avail_in != 0 && *stream_.next_in == 0) {
        ++stream_.next_in;
        --stream_.avail_in;
        padding_ = true;
      }
    } while (stream_.avail_in == 0 && fill());
    if (stream_.avail_in != 0 && padding_) {
      fail(ExitCode::data, "{}: data after the padding at byte {}", path_,
           read_ - stream_.avail_in);
    }
    return stream_.avail_in == 0;
  }

  std::string path_;
  PlainReader source_;
  std::vector<char> buffer_;
  z_stream stream_{};
  std::size_t read_ = 0;  // bytes of the file
  bool inside_member_ = false;
  bool padding_ = false;
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
