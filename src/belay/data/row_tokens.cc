#include "belay/data/row_tokens.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <vector>

#include "belay/base/error.h"

namespace belay::data {
namespace {

// Reads anywhere in a file. Mapping it would count all of it as memory of this process.
class RandomReader {
 public:
  explicit RandomReader(std::string path)
      : path_(std::move(path)), file_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (file_ < 0) refuse(std::strerror(errno));
  }
  RandomReader(const RandomReader&) = delete;
  RandomReader& operator=(const RandomReader&) = delete;
  ~RandomReader() {
    if (file_ >= 0) ::close(file_);
  }

  void read(std::uint64_t offset, std::span<std::byte> out) const {
    while (!out.empty()) {
      const ::ssize_t got = ::pread(file_, out.data(), out.size(), static_cast<::off_t>(offset));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) refuse(got == 0 ? "it ends early" : std::strerror(errno));
      offset += static_cast<std::uint64_t>(got);
      out = out.subspan(static_cast<std::size_t>(got));
    }
  }

 private:
  [[noreturn]] void refuse(const char* why) const {
    fail(ExitCode::data, "{}: cannot read: {}", path_, why);
  }

  std::string path_;
  int file_ = -1;
};

// Reads the items of a store file one after another.
template <class T>
class ItemReader {
 public:
  explicit ItemReader(std::string path) : path_(std::move(path)), file_(path_, std::ios::binary) {
    file_.seekg(static_cast<std::streamoff>(kStoreHeaderBytes));
  }
  bool next(T& item) {
    file_.read(reinterpret_cast<char*>(&item), sizeof(T));
    if (file_.bad()) fail(ExitCode::data, "{}: cannot read", path_);
    return file_.good();
  }

 private:
  std::string path_;
  std::ifstream file_;
};

}  // namespace

void write_row_tokens(const std::string& directory, std::int64_t width, std::int64_t row_len,
                      std::int64_t fill, OutputFile& file) {
  const auto path = [&](const char* name) {
    return (std::filesystem::path(directory) / name).string();
  };
  const RandomReader tokens(path(kTokensFile));
  ItemReader<std::uint64_t> rows(path(kRowsFile));
  ItemReader<Piece> pieces(path(kPiecesFile));
  const auto bytes = static_cast<std::size_t>(width);
  std::vector<std::byte> row(static_cast<std::size_t>(row_stride(row_len, width)) * bytes);
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  rows.next(begin);
  for (; rows.next(end); begin = end) {
    std::size_t at = 0;
    Piece piece;
    for (std::uint64_t p = begin; p < end && pieces.next(piece); ++p) {
      const std::size_t size = piece.length * bytes;
      tokens.read(kStoreHeaderBytes + piece.begin * bytes, std::span(row).subspan(at, size));
      at += size;
    }
    // Little-endian, as the machine is: the low bytes come first.
    for (; at < row.size(); at += bytes) std::memcpy(row.data() + at, &fill, bytes);
    file.write(row);
  }
}

}  // namespace belay::data
