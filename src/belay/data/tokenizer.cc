#include "belay/data/tokenizer.h"

#include <filesystem>

#include "belay/base/error.h"
#include "belay/base/file.h"
#include "belay/data/byte_tokenizer.h"

namespace belay::data {
namespace {

std::string find_in_directory(const std::string& directory) {
  for (const char* name : {"tokenizer.json", "tokenizer.model", "tokenizer.bytes.json"}) {
    const std::filesystem::path path = std::filesystem::path(directory) / name;
    if (std::filesystem::is_regular_file(path)) return path.string();
  }
  fail(ExitCode::data,
       "{}: holds no tokenizer.json, tokenizer.model or tokenizer.bytes.json; name the tokenizer "
       "file itself",
       directory);
}

}  // namespace

std::unique_ptr<Tokenizer> load_tokenizer(const std::string& spec) {
  if (spec == "bytes") return std::make_unique<ByteTokenizer>();
  std::error_code error;
  const std::string path =
      std::filesystem::is_directory(spec, error) ? find_in_directory(spec) : spec;
  const std::string content = read_file(path);
  if (content.starts_with("{\"belay_tokenizer\": \"bytes\"}")) {
    return std::make_unique<ByteTokenizer>();
  }
  fail(ExitCode::data, "{}: not a tokenizer that belay can read", path);
}

}  // namespace belay::data
