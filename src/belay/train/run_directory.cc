#include "belay/train/run_directory.h"

#include <filesystem>

#include "belay/base/error.h"
#include "belay/base/log.h"
#include "belay/snapshot/snapshot.h"
#include "belay/train/residual_state.h"

namespace belay {

namespace fs = std::filesystem;

namespace {

// Those of the last attempt would pass for those of this one.
void set_flight_records_aside(const std::string& out) {
  const fs::path records = fs::path(out) / "flight";
  std::error_code error;
  // After an end in order there are none, and those before stay what they are.
  if (!fs::exists(records) || fs::is_empty(records, error)) return;
  fs::remove_all(fs::path(out) / "flight.previous", error);
  fs::rename(records, fs::path(out) / "flight.previous", error);
  if (error) fail(ExitCode::data, "cannot set {} aside: {}", records.string(), error.message());
}

// Once the directory is locked nobody writes them.
void remove_unfinished_residuals(const std::string& out, std::vector<std::string>& removed) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(out, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(kUnfinishedResiduals) && fs::remove(entry.path(), error)) {
      removed.push_back(name);
    }
  }
}

}  // namespace

std::unique_ptr<RunLock> open_run_directory(const std::string& out, bool go_on) {
  if (out.empty()) fail(ExitCode::usage, "--out is empty; name the run directory");
  if (!go_on &&
      (fs::exists(fs::path(out) / "metrics.jsonl") || fs::exists(fs::path(out) / "snapshots"))) {
    fail(ExitCode::usage,
         "{} already holds a run; continue it with --resume auto, or choose another --out", out);
  }
  std::error_code error;
  fs::create_directories(out, error);
  if (error) fail(ExitCode::data, "cannot create {}: {}", out, error.message());
  auto lock = std::make_unique<RunLock>(out);
  set_flight_records_aside(out);
  log::set_file((fs::path(out) / "log.txt").string());
  std::vector<std::string> removed = clean_unfinished_snapshots(out);
  remove_unfinished_residuals(out, removed);
  for (const std::string& name : removed) {
    log::warn("removed {}, left behind by a process that no longer exists", name);
  }
  return lock;
}

std::string newest_snapshot(const std::string& out) {
  const auto found = find_latest_snapshot(out);
  if (!found) {
    log::info("no snapshot in {}: starting from step 0", out);
    return "";
  }
  for (const std::string& bad : found->passed_over) log::warn("passed over {}", bad);
  return found->dir;
}

}  // namespace belay
