#pragma once
// Whole small files: read with a size limit, written so that the final name only ever shows a
// complete file.

#include <cstdint>
#include <string>
#include <string_view>

namespace belay {

// Content of a regular file. Error(data) if it cannot be read or holds more than `limit` bytes.
std::string read_file(const std::string& path, std::int64_t limit = std::int64_t{1} << 30);

// As an AtomicFile, with its errors.
void write_file(const std::string& path, std::string_view content);

// Makes renames inside a directory durable. Error(data) when it cannot be synced.
void sync_directory(const std::string& directory);

// Bytes that an unprivileged process can still write below a directory.
std::uint64_t free_bytes(const std::string& directory);

// The part of a path before the last '/', "." without one.
std::string directory_of(const std::string& path);

}  // namespace belay
