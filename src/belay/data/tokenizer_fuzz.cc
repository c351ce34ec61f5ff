// Fuzzer: a tokenizer.json, a zero byte, then a text. Whatever loads must encode the text to ids in
// range and, if it says so itself, get it back.

#include <cstdlib>
#include <string>

#include "belay/base/error.h"
#include "belay/data/bpe_trainer.h"

namespace {

void exercise(const belay::data::Tokenizer& tokenizer, std::string_view text,
              belay::data::SpecialText special) {
  std::vector<std::int32_t> ids;
  tokenizer.encode(text, ids, special);
  std::string streamed;
  for (const std::int32_t id : ids) {
    if (id < 0 || id >= tokenizer.vocab_size()) std::abort();
    streamed += tokenizer.token_bytes(id);
  }
  const std::string decoded = tokenizer.decode(ids);
  // Decoding may only drop spaces at the front of what the tokens say one by one.
  if (!streamed.ends_with(decoded)) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t end = input.find('\0');
  const std::string_view text = end == std::string_view::npos ? input : input.substr(end + 1);
  try {
    const auto tokenizer =
        belay::data::tokenizer_from_json(std::string(input.substr(0, end)), "fuzz");
    (void)tokenizer->count_special_text(text);
    exercise(*tokenizer, text, belay::data::SpecialText::ordinary);
    exercise(*tokenizer, text, belay::data::SpecialText::map);
  } catch (const belay::Error&) {
    // Broken files are refused that way.
  }
  return 0;
}
