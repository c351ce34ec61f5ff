#include "belay/data/tokenizer.h"

#include <filesystem>

#include "belay/base/error.h"
#include "belay/base/file.h"
#include "belay/data/bpe_tokenizer.h"
#include "belay/data/byte_tokenizer.h"
#include "belay/data/sentencepiece_tokenizer.h"

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
  std::string content = read_file(path);
  if (content.starts_with("{\"belay_tokenizer\": \"bytes\"}")) {
    return std::make_unique<ByteTokenizer>();
  }
  const std::size_t first = content.find_first_not_of(" \t\r\n");
  if (first != std::string::npos && content[first] == '{') {
    return std::make_unique<BpeTokenizer>(read_tokenizer_json(std::move(content), path));
  }
  if (content.empty()) fail(ExitCode::data, "{}: the tokenizer file is empty", path);
  return make_sentencepiece_tokenizer(std::move(content), path);
}

}  // namespace belay::data
