#include "belay/snapshot/manifest.h"

#include <fmt/ranges.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "belay/base/error.h"
#include "belay/base/file.h"
#include "belay/base/mapped_file.h"
#include "belay/snapshot/json_number.h"
#include "belay/snapshot/output_file.h"

namespace belay {
namespace {

constexpr std::int64_t kMaxManifest = std::int64_t{1} << 20;
constexpr std::string_view kOwnHash = "manifest_xxh3";

std::string hex(std::uint64_t hash) {
  return fmt::format("{:016x}", hash);
}

std::uint64_t hash_text(std::string_view text) {
  return hash_bytes(std::as_bytes(std::span(text.data(), text.size())));
}

nlohmann::ordered_json to_json(const Manifest& manifest) {
  nlohmann::ordered_json json;
  json["kind"] = manifest.kind;
  json["format"] = manifest.format;
  json["engine"] = manifest.engine;
  json["step"] = manifest.step;
  json["files"] = nlohmann::ordered_json::array();
  for (const WrittenFile& file : manifest.files) {
    json["files"].push_back({{"name", file.name}, {"bytes", file.bytes}, {"xxh3", hex(file.hash)}});
  }
  return json;
}

std::uint64_t parse_hex(const std::string& text, const std::string& path) {
  std::size_t used = 0;
  std::uint64_t value = 0;
  try {
    value = std::stoull(text, &used, 16);
  } catch (const std::exception&) {
    used = 0;
  }
  if (text.size() != 16 || used != 16) fail(ExitCode::data, "{}: '{}' is no hash", path, text);
  return value;
}

}  // namespace

std::string manifest_text(const Manifest& manifest) {
  nlohmann::ordered_json json = to_json(manifest);
  json[std::string(kOwnHash)] = hex(hash_text(json.dump(2)));
  return json.dump(2) + "\n";
}

Manifest parse_manifest(std::string_view text, const std::string& path) {
  const auto json = nlohmann::ordered_json::parse(text, nullptr, false);
  if (json.is_discarded() || !json.is_object()) {
    fail(ExitCode::data, "{}: not a JSON object; the file is damaged", path);
  }
  Manifest manifest;
  try {
    manifest.format = whole_number<int>(json, "format", path);
    if (manifest.format > kSnapshotFormat) {
      fail(ExitCode::data, "{}: format {} is newer than this engine reads ({})", path,
           manifest.format, kSnapshotFormat);
    }
    manifest.kind = json.at("kind").get<std::string>();
    manifest.engine = json.at("engine").get<std::string>();
    manifest.step = whole_number<std::int64_t>(json, "step", path);
    for (const auto& entry : json.at("files")) {
      WrittenFile file;
      file.name = entry.at("name").get<std::string>();
      file.bytes = whole_number<std::uint64_t>(entry, "bytes", path);
      file.hash = parse_hex(entry.at("xxh3").get<std::string>(), path);
      if (file.name.empty() || file.name.find('/') != std::string::npos || file.name == "..") {
        fail(ExitCode::data, "{}: '{}' is not a file name of this directory", path, file.name);
      }
      manifest.files.push_back(std::move(file));
    }
  } catch (const nlohmann::json::exception& error) {
    fail(ExitCode::data, "{}: not a manifest: {}", path, error.what());
  }
  // Writing the parsed values again must give the very same text.
  if (manifest_text(manifest) != text) {
    fail(ExitCode::data, "{}: its own hash does not match; the file is damaged", path);
  }
  return manifest;
}

void write_manifest(const std::string& dir, const Manifest& manifest) {
  OutputFile file(dir + "/" + std::string(kManifestFile));
  file.append(manifest_text(manifest));
  file.finish();
}

Manifest read_manifest(const std::string& dir) {
  const std::string path = dir + "/" + std::string(kManifestFile);
  return parse_manifest(read_file(path, kMaxManifest), path);
}

std::vector<std::string> verify_files(const std::string& dir, const Manifest& manifest) {
  std::vector<std::string> problems;
  for (const WrittenFile& expected : manifest.files) {
    try {
      const MappedFile file(dir + "/" + expected.name);
      if (file.bytes().size() != expected.bytes) {
        problems.push_back(fmt::format("{} has {} bytes, {} were written", expected.name,
                                       file.bytes().size(), expected.bytes));
      } else if (hash_bytes(file.bytes()) != expected.hash) {
        problems.push_back(fmt::format("the content of {} has changed (XXH3 {}, written {})",
                                       expected.name, hex(hash_bytes(file.bytes())),
                                       hex(expected.hash)));
      }
    } catch (const Error&) {
      std::error_code error;
      problems.push_back(fmt::format("{} {}", expected.name,
                                     std::filesystem::exists(dir + "/" + expected.name, error)
                                         ? "cannot be read"
                                         : "is missing"));
    }
  }
  return problems;
}

Manifest verify_directory(const std::string& dir) {
  Manifest manifest = read_manifest(dir);
  if (const std::vector<std::string> problems = verify_files(dir, manifest); !problems.empty()) {
    fail(ExitCode::data, "{}: {}", dir, fmt::join(problems, "; "));
  }
  return manifest;
}

}  // namespace belay
