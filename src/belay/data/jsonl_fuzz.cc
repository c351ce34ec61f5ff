// Any line is either refused with a reason or gives text that is UTF-8; cutting text always makes
// progress.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "belay/data/input_reader.h"
#include "belay/data/jsonl.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace belay::data;
  std::string line(reinterpret_cast<const char*>(data), size);
  line.resize(size + kJsonPadding);
  const std::string_view content = std::string_view(line).substr(0, size);
  static JsonlParser parser;
  std::string_view text;
  JsonlError error;
  if (parser.parse(content, "text", text, error)) {
    if (find_invalid_utf8(text) != std::string_view::npos) std::abort();
  } else if (error.what.empty() || error.offset > static_cast<std::int64_t>(size)) {
    std::abort();
  }
  for (std::size_t limit = 1; limit < size && limit < 16; ++limit) {
    const std::size_t cut = cut_point(content, limit);
    if (cut == 0 || cut > limit) std::abort();
  }
  return 0;
}
