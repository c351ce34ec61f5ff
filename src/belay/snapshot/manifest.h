#pragma once
// manifest.json: what a directory must hold. It lists size and XXH3-64 hash of every other file and
// ends with its own hash, so that a change anywhere is seen.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "belay/snapshot/output_file.h"

namespace belay {

inline constexpr std::string_view kManifestFile = "manifest.json";
inline constexpr int kSnapshotFormat = 1;  // raised when an older engine could misread it

struct Manifest {
  std::string kind;  // "snapshot", or "weights" without optimizer and state
  int format = kSnapshotFormat;
  std::string engine;  // version that wrote it
  std::int64_t step = 0;
  std::vector<WrittenFile> files;
};

std::string manifest_text(const Manifest& manifest);
// Error(data) on anything malformed, a wrong own hash, or a format newer than this engine's.
Manifest parse_manifest(std::string_view text, const std::string& path);
void write_manifest(const std::string& dir, const Manifest& manifest);
Manifest read_manifest(const std::string& dir);

// Reads every listed file. One line per file that is missing or differs; empty when all is well.
std::vector<std::string> verify_files(const std::string& dir, const Manifest& manifest);

// As read_manifest, then Error(data) naming every bad file.
Manifest verify_directory(const std::string& dir);

}  // namespace belay
