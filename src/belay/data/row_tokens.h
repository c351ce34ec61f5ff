#pragma once
// The ids of packed rows as rows: each begins at a multiple of 128 bytes behind the header, so a
// row is read, or handed to a device, in one piece.

#include <cstdint>
#include <string>

#include "belay/data/output_file.h"
#include "belay/data/store_format.h"

namespace belay::data {

// Ids from the start of a row to the start of the next, for ids of `width` bytes.
constexpr std::int64_t row_stride(std::int64_t row_len, std::int64_t width) {
  const auto unit = static_cast<std::int64_t>(kRowAlignment) / width;
  return (row_len + unit - 1) / unit * unit;
}

// Writes every row of a store whose other files are complete, filled up with `fill`. Ids take
// `width` bytes (2 or 4). Reads what it needs piece by piece, so memory does not grow with the
// store. Error(data) names the file that cannot be read.
void write_row_tokens(const std::string& directory, std::int64_t width, std::int64_t row_len,
                      std::int64_t fill, OutputFile& file);

}  // namespace belay::data
