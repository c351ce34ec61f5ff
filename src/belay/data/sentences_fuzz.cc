// Whatever the bytes are, sentence ends rise and enclose white space, and rows of the text hold
// each byte once.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "belay/data/sentence_packer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace belay::data;
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  static SentenceSplitter splitter;
  std::vector<SentenceEnd> ends;
  splitter.split(text, ends);
  std::size_t last = 0;
  std::vector<Cut> cuts;
  for (const SentenceEnd& end : ends) {
    if (end.text_end <= last || end.end < end.text_end || end.end > size) std::abort();
    last = end.end;
    if (end.end < size) cuts.push_back({end.end, end.paragraph});
  }
  constexpr std::int64_t kRowLen = 16;
  std::vector<bool> seen(size);
  std::size_t count = 0;
  SentencePacker packer(kRowLen, [&](std::span<const Piece> pieces) {
    std::int64_t used = 0;
    for (const Piece& piece : pieces) {
      used += piece.length;
      for (std::uint64_t i = piece.begin; i < piece.begin + piece.length; ++i) {
        if (i >= size || seen[i]) std::abort();
        seen[i] = true;
        ++count;
      }
    }
    if (used == 0 || used > kRowLen) std::abort();
  });
  packer.append(size, cuts);
  packer.end_document();
  packer.finish();
  if (count != size) std::abort();
  return 0;
}
