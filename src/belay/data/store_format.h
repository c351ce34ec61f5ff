#pragma once
// The token store, belay's own format. A store is a directory:
//
//   meta.json       what it holds, for people and programs
//   tokens.bin      the ids of all documents one after another, u16 or u32
//   documents.bin   u64 start of each document in tokens.bin, and the total at the end
//   rows.bin        only when packed for a row length: u64 first piece of each row, and the total
//   pieces.bin      likewise: the pieces of the rows, in order
//   row_tokens.bin  likewise: the ids of each row, 128-byte aligned, filled up to the row length
//   the tokenizer   under the name that tokenizer gives its file
//
// Every .bin begins with a 128-byte header, so payloads are 128-byte aligned when mapped. All
// integers are little-endian:
//   0 "BELAYTOK" | 8 u32 version | 12 u32 kind | 16 u32 bytes per item | 20 u32 0 | 24 u64 items |
//   32 u64 parameter | 40 u64 XXH3 of the payload | 48 u64 XXH3 of bytes 0..47 | zeros
// parameter: the largest id (tokens), the row length (rows, row tokens), 0 otherwise.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace belay::data {

inline constexpr std::string_view kStoreMagic = "BELAYTOK";
inline constexpr std::uint32_t kStoreVersion = 1;
inline constexpr std::size_t kStoreHeaderBytes = 128;
inline constexpr std::size_t kRowAlignment = 128;  // of each row in row_tokens.bin

inline constexpr const char* kMetaFile = "meta.json";
inline constexpr const char* kTokensFile = "tokens.bin";
inline constexpr const char* kDocumentsFile = "documents.bin";
inline constexpr const char* kRowsFile = "rows.bin";
inline constexpr const char* kPiecesFile = "pieces.bin";
inline constexpr const char* kRowTokensFile = "row_tokens.bin";

enum class StoreKind : std::uint32_t {
  tokens = 1,
  documents = 2,
  rows = 3,
  pieces = 4,
  row_tokens = 5
};

struct StoreHeader {
  StoreKind kind = StoreKind::tokens;
  std::uint32_t item_bytes = 0;
  std::uint64_t items = 0;
  std::uint64_t parameter = 0;
  std::uint64_t payload_hash = 0;
};

// A run of tokens of one document inside a row. Rows that are cut from a longer document are one
// piece each.
struct Piece {
  std::uint64_t begin = 0;   // position in tokens.bin
  std::uint32_t length = 0;  // > 0
  std::uint32_t reserved = 0;
};
static_assert(sizeof(Piece) == 16);

std::array<std::byte, kStoreHeaderBytes> encode_header(const StoreHeader& header);

// Checks magic, version, kind, item width, header hash and that the file holds exactly the items.
// Error(data) names `path` and the value found.
StoreHeader parse_header(std::span<const std::byte> file, StoreKind kind, const std::string& path);

// `starts` must begin with 0, never fall and end with `total`.
void check_starts(std::span<const std::uint64_t> starts, std::uint64_t total,
                  const std::string& path);

// Rows and pieces against each other and against the documents: each row's pieces fill at most
// row_len, each piece lies inside one document.
void check_rows(std::span<const std::uint64_t> rows, std::span<const Piece> pieces,
                std::span<const std::uint64_t> documents, std::uint64_t row_len,
                const std::string& rows_path, const std::string& pieces_path);

// What follows the header of a file that was checked.
template <class T>
std::span<const T> payload_of(std::span<const std::byte> file) {
  const auto bytes = file.subspan(kStoreHeaderBytes);
  return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
}

std::uint64_t hash_bytes(std::span<const std::byte> bytes);

}  // namespace belay::data
