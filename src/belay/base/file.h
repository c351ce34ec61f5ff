#pragma once
// Whole small files: read with a size limit, written so that the final name only ever shows a
// complete file.

#include <cstdint>
#include <string>
#include <string_view>

namespace belay {

// Content of a regular file. Error(data) if it cannot be read or holds more than `limit` bytes.
std::string read_file(const std::string& path, std::int64_t limit = std::int64_t{1} << 30);

// Writes to a temporary name in the same directory, syncs and renames. Error(capacity) when the
// disk is full, Error(data) otherwise; the temporary file is removed in both cases.
void write_file(const std::string& path, std::string_view content);

}  // namespace belay
