#include "belay/snapshot/directory_writer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <utility>

#include "belay/base/error.h"
#include "belay/base/file.h"
#include "belay/snapshot/output_file.h"

namespace belay {
namespace {

constexpr std::string_view kMark = ".tmp-";

std::string without_slash(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

}  // namespace

DirectoryWriter::DirectoryWriter(std::string path, Existing existing)
    : path_(without_slash(std::move(path))),
      temporary_(fmt::format("{}{}{}", path_, kMark, ::getpid())),
      existing_(existing) {
  std::error_code error;
  if (existing_ == Existing::refuse && std::filesystem::exists(path_, error)) {
    fail(ExitCode::usage, "{} exists already; choose another directory or remove it", path_);
  }
  std::filesystem::create_directories(directory_of(path_), error);
  std::filesystem::remove_all(temporary_, error);  // of an earlier process with the same number
  if (::mkdir(temporary_.c_str(), 0755) != 0) {
    const int reason = errno;
    fail(reason == ENOSPC || reason == EDQUOT ? ExitCode::capacity : ExitCode::data,
         "{}: cannot create the directory: {}", temporary_, std::strerror(reason));
  }
}

DirectoryWriter::~DirectoryWriter() {
  if (finished_) return;
  std::error_code error;
  std::filesystem::remove_all(temporary_, error);
}

void DirectoryWriter::finish() {
  sync_directory(temporary_);
  std::error_code error;
  bool exchanged = false;
  if (existing_ == Existing::replace && std::filesystem::exists(path_, error)) {
    // One step, so that there is a complete directory of this name at every moment.
    exchanged =
        ::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, path_.c_str(), RENAME_EXCHANGE) == 0;
    if (!exchanged) std::filesystem::remove_all(path_, error);  // file systems without exchange
  }
  if (!exchanged && std::rename(temporary_.c_str(), path_.c_str()) != 0) {
    fail(ExitCode::data, "{}: cannot be renamed to {}: {}", temporary_, path_,
         std::strerror(errno));
  }
  finished_ = true;
  sync_directory(directory_of(path_));
  if (exchanged) std::filesystem::remove_all(temporary_, error);
}

int process_of_temporary(const std::string& name) {
  const std::size_t mark = name.rfind(kMark);
  if (mark == std::string::npos) return 0;
  const char* begin = name.data() + mark + kMark.size();
  const char* end = name.data() + name.size();
  int process = 0;
  const auto [stop, error] = std::from_chars(begin, end, process);
  return error == std::errc() && stop == end && process > 0 ? process : 0;
}

}  // namespace belay
