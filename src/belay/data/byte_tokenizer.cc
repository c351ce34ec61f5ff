#include "belay/data/byte_tokenizer.h"

#include "belay/base/error.h"
#include "belay/base/file.h"

namespace belay::data {

void ByteTokenizer::encode(std::string_view text, std::vector<std::int32_t>& ids,
                           SpecialText) const {
  // resize() grows geometrically where reserve() would copy everything for each short text.
  const std::size_t begin = ids.size();
  ids.resize(begin + text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    ids[begin + i] = static_cast<unsigned char>(text[i]);
  }
}

std::string ByteTokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string text;
  text.reserve(ids.size());
  for (const std::int32_t id : ids) text += token_bytes(id);
  return text;
}

std::string ByteTokenizer::token_bytes(std::int32_t id) const {
  if (id < 0 || id > kEndOfDocument) {
    fail(ExitCode::data, "token id {} is outside the vocabulary [0, {})", id, vocab_size());
  }
  if (id == kEndOfDocument) return {};
  return std::string(1, static_cast<char>(id));
}

void ByteTokenizer::save(const std::string& path) const {
  write_file(path, "{\"belay_tokenizer\": \"bytes\"}\n");
}

}  // namespace belay::data
