#include <fmt/ranges.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>

#include "belay/base/error.h"
#include "belay/base/file.h"
#include "belay/snapshot/directory_writer.h"
#include "belay/snapshot/manifest.h"
#include "belay/snapshot/snapshot.h"
#include "belay/snapshot/snapshot_files.h"

namespace belay {
namespace {

constexpr std::string_view kNamePrefix = "step-";

std::string snapshots_of(const std::string& run_dir) {
  return fmt::format("{}/{}", run_dir, kSnapshotDirectory);
}

std::vector<std::string> list_names(const std::string& run_dir) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator it(snapshots_of(run_dir), error), end;
       !error && it != end; it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  return names;
}

// Why a directory is not usable; empty when it is.
std::string defect_of(const std::string& dir) {
  try {
    const Manifest manifest = verify_directory(dir);
    if (manifest.kind != "snapshot") return dir + ": not a training snapshot";
    if (manifest.step != step_of_snapshot(std::filesystem::path(dir).filename().string())) {
      return fmt::format("{}: holds step {}", dir, manifest.step);
    }
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

bool is_alive(int process) {
  return process != ::getpid() && (::kill(process, 0) == 0 || errno == EPERM);
}

}  // namespace

std::string snapshot_name(std::int64_t step) {
  return fmt::format("{}{:08}", kNamePrefix, step);
}

std::int64_t step_of_snapshot(std::string_view name) {
  if (!name.starts_with(kNamePrefix)) return -1;
  std::int64_t step = -1;
  const char* end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + kNamePrefix.size(), end, step);
  return error == std::errc() && stop == end && step >= 0 && snapshot_name(step) == name ? step
                                                                                         : -1;
}

std::string moment_name(char moment, std::string_view parameter) {
  return fmt::format("{}.{}", moment, parameter);
}

std::vector<std::string> list_snapshots(const std::string& run_dir) {
  std::vector<std::string> names = list_names(run_dir);
  std::erase_if(names, [](const std::string& name) { return step_of_snapshot(name) < 0; });
  std::sort(names.begin(), names.end(), [](const std::string& a, const std::string& b) {
    return step_of_snapshot(a) > step_of_snapshot(b);
  });
  return names;
}

std::vector<std::string> list_unfinished(const std::string& run_dir) {
  std::vector<std::string> names = list_names(run_dir);
  std::erase_if(names, [](const std::string& name) { return process_of_temporary(name) == 0; });
  std::sort(names.begin(), names.end());
  return names;
}

std::optional<FoundSnapshot> find_latest_snapshot(const std::string& run_dir) {
  FoundSnapshot found;
  for (const std::string& name : list_unfinished(run_dir)) {
    if (name.starts_with(kNamePrefix)) {
      found.passed_over.push_back(
          fmt::format("{}/{}: a save that did not finish", snapshots_of(run_dir), name));
    }
  }
  const std::vector<std::string> names = list_snapshots(run_dir);
  for (const std::string& name : names) {
    const std::string dir = snapshots_of(run_dir) + "/" + name;
    std::string defect = defect_of(dir);
    if (defect.empty()) {
      found.dir = dir;
      return found;
    }
    found.passed_over.push_back(std::move(defect));
  }
  if (names.empty()) return std::nullopt;
  fail(ExitCode::data, "{}: no snapshot is usable:\n  {}", snapshots_of(run_dir),
       fmt::join(found.passed_over, "\n  "));
}

std::vector<std::string> clean_unfinished_snapshots(const std::string& run_dir) {
  std::vector<std::string> removed;
  for (const std::string& name : list_unfinished(run_dir)) {
    if (is_alive(process_of_temporary(name))) continue;
    std::error_code error;
    std::filesystem::remove_all(snapshots_of(run_dir) + "/" + name, error);
    if (!error) removed.push_back(name);
  }
  return removed;
}

}  // namespace belay
