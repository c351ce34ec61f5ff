// Any bytes are either refused with belay::Error or describe tokens that lie inside the file:
// Megatron's index, llm.c's header and the files of our own store.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

#include "belay/base/error.h"
#include "belay/data/foreign_format.h"
#include "belay/data/store_format.h"

namespace {

using namespace belay;
using namespace belay::data;

void require(bool condition) {
  if (!condition) std::abort();
}

template <class Action>
void attempt(Action&& action) {
  try {
    action();
  } catch (const Error&) {
    return;
  }
}

void megatron(std::span<const std::byte> file, std::uint64_t bin_bytes) {
  const MegatronIndex index = parse_megatron_index(file, bin_bytes, "input");
  require(!index.documents.empty() && index.documents.front() == 0);
  require(std::is_sorted(index.documents.begin(), index.documents.end()));
  const auto width = static_cast<std::uint64_t>(width_of(index.type));
  require(index.documents.back() * width == bin_bytes);
}

void llmc(std::span<const std::byte> file) {
  const TokenView tokens = parse_llmc(file, "input");
  const auto bytes = static_cast<std::size_t>(tokens.count * width_of(tokens.type));
  require(tokens.data + bytes == file.data() + file.size());
  static_cast<void>(tokens.largest(0, tokens.count));
}

// The header's own checksum is put right, which no fuzzer would find.
void store(std::span<const std::byte> input) {
  if (input.size() < kStoreHeaderBytes) return;
  std::vector<std::byte> file(input.begin(), input.end());
  const std::uint64_t hash = hash_bytes(std::span(file).first(48));
  std::memcpy(file.data() + 48, &hash, sizeof(hash));
  for (const StoreKind kind :
       {StoreKind::tokens, StoreKind::documents, StoreKind::rows, StoreKind::pieces}) {
    attempt([&] {
      const StoreHeader header = parse_header(file, kind, "input");
      require(header.items * header.item_bytes == file.size() - kStoreHeaderBytes);
    });
  }
  // The payload as an index: its words are row starts, document starts and pieces.
  constexpr std::size_t kFewest = 6 * sizeof(std::uint64_t);
  if (file.size() < kStoreHeaderBytes + kFewest) return;
  std::vector<std::uint64_t> words((file.size() - kStoreHeaderBytes) / sizeof(std::uint64_t));
  std::memcpy(words.data(), file.data() + kStoreHeaderBytes, words.size() * sizeof(std::uint64_t));
  const std::size_t third = words.size() / 3;
  const std::span rows = std::span(words).first(third);
  const std::span documents = std::span(words).subspan(third, third);
  std::vector<Piece> pieces(third / 2);
  std::memcpy(pieces.data(), words.data() + 2 * third, pieces.size() * sizeof(Piece));
  attempt([&] { check_starts(documents, documents.empty() ? 0 : documents.back(), "documents"); });
  attempt([&] { check_rows(rows, pieces, documents, 64, "rows", "pieces"); });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> file = std::as_bytes(std::span(data, size));
  for (const std::uint64_t bin_bytes : {std::uint64_t{10}, std::uint64_t{size}}) {
    attempt([&] { megatron(file, bin_bytes); });
  }
  attempt([&] { llmc(file); });
  store(file);
  return 0;
}
