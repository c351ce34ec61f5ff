#pragma once
// ByteReader: a file as a stream of bytes, decompressed on the fly by its name: .gz and .zst
// (several members or frames one after another included), anything else as it is.

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace belay::data {

class ByteReader {
 public:
  ByteReader() = default;
  ByteReader(const ByteReader&) = delete;
  ByteReader& operator=(const ByteReader&) = delete;
  virtual ~ByteReader() = default;

  // Fills `out` from the front and returns the number of bytes; 0 only at the end. Error(data) if
  // the file cannot be read, is truncated or does not decompress.
  virtual std::size_t read(std::span<char> out) = 0;
};

std::unique_ptr<ByteReader> open_reader(const std::string& path);

// The name without a compression suffix: "a.jsonl.zst" -> "a.jsonl".
std::string without_compression(const std::string& path);

}  // namespace belay::data
