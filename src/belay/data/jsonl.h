#pragma once
// One line of a JSONL file: a JSON object whose text stands under a key.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace belay::data {

// Bytes that must be readable after a line (their value does not matter).
inline constexpr std::size_t kJsonPadding = 64;

struct JsonlError {
  std::string what;          // without file and line, which the caller knows
  std::int64_t offset = -1;  // of the offending byte in the line; -1: none in particular
};

// Position of the first byte that does not belong to well-formed UTF-8 (Unicode 15, table 3-7), or
// npos.
std::size_t find_invalid_utf8(std::string_view text);

// Keeps its buffers; one per thread.
class JsonlParser {
 public:
  JsonlParser();
  ~JsonlParser();
  JsonlParser(const JsonlParser&) = delete;
  JsonlParser& operator=(const JsonlParser&) = delete;

  // `line` must be followed by kJsonPadding readable bytes. True: `text` is the value under `key`,
  // valid until the next call. False: `error` tells why.
  bool parse(std::string_view line, std::string_view key, std::string_view& text,
             JsonlError& error);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace belay::data
