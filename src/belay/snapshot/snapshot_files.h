#pragma once
// Names inside a snapshot and a run directory.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace belay {

inline constexpr std::string_view kSnapshotDirectory = "snapshots";
inline constexpr std::string_view kLatestFile = "latest";
inline constexpr std::string_view kOptimizerFile = "optimizer.safetensors";
inline constexpr std::string_view kResidualsFile = "residuals.safetensors";
inline constexpr std::string_view kStateFile = "state.json";

std::string snapshot_name(std::int64_t step);  // "step-00000010"
// The step of a snapshot's name, -1 when it is none.
std::int64_t step_of_snapshot(std::string_view name);

// Snapshots under their final names, newest first.
std::vector<std::string> list_snapshots(const std::string& run_dir);
// Directories that a save did not finish.
std::vector<std::string> list_unfinished(const std::string& run_dir);

// Parameters of the snapshot's optimizer file: "m.NAME", "v.NAME".
std::string moment_name(char moment, std::string_view parameter);

}  // namespace belay
