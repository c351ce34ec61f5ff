#include "belay/data/store_format.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>

#include "belay/base/error.h"

namespace belay::data {
namespace {

constexpr std::size_t kHashedBytes = 48;

template <class T>
T get(std::span<const std::byte> bytes, std::size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

template <class T>
void put(std::span<std::byte> bytes, std::size_t offset, T value) {
  std::memcpy(bytes.data() + offset, &value, sizeof(T));
}

bool width_allowed(StoreKind kind, std::uint32_t bytes) {
  switch (kind) {
    case StoreKind::tokens:
    case StoreKind::row_tokens:
      return bytes == 2 || bytes == 4;
    case StoreKind::documents:
    case StoreKind::rows:
      return bytes == 8;
    case StoreKind::pieces:
      return bytes == sizeof(Piece);
  }
  return false;
}

}  // namespace

std::uint64_t hash_bytes(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

std::array<std::byte, kStoreHeaderBytes> encode_header(const StoreHeader& header) {
  std::array<std::byte, kStoreHeaderBytes> bytes{};
  std::memcpy(bytes.data(), kStoreMagic.data(), kStoreMagic.size());
  put(bytes, 8, kStoreVersion);
  put(bytes, 12, static_cast<std::uint32_t>(header.kind));
  put(bytes, 16, header.item_bytes);
  put(bytes, 24, header.items);
  put(bytes, 32, header.parameter);
  put(bytes, 40, header.payload_hash);
  put(bytes, 48, hash_bytes(std::span(bytes).first(kHashedBytes)));
  return bytes;
}

StoreHeader parse_header(std::span<const std::byte> file, StoreKind kind, const std::string& path) {
  if (file.size() < kStoreHeaderBytes) {
    fail(ExitCode::data, "{}: {} bytes are too few for the {}-byte header", path, file.size(),
         kStoreHeaderBytes);
  }
  if (std::memcmp(file.data(), kStoreMagic.data(), kStoreMagic.size()) != 0) {
    fail(ExitCode::data, "{}: not a belay token store: it does not begin with {}", path,
         kStoreMagic);
  }
  if (const auto version = get<std::uint32_t>(file, 8); version != kStoreVersion) {
    fail(ExitCode::data, "{}: format version {}, this program reads version {}; pack again", path,
         version, kStoreVersion);
  }
  const auto found_hash = get<std::uint64_t>(file, 48);
  const auto header_hash = hash_bytes(file.first(kHashedBytes));
  if (found_hash != header_hash) {
    fail(ExitCode::data, "{}: header is damaged: checksum {:016x}, computed {:016x}", path,
         found_hash, header_hash);
  }
  StoreHeader header;
  header.kind = static_cast<StoreKind>(get<std::uint32_t>(file, 12));
  header.item_bytes = get<std::uint32_t>(file, 16);
  header.items = get<std::uint64_t>(file, 24);
  header.parameter = get<std::uint64_t>(file, 32);
  header.payload_hash = get<std::uint64_t>(file, 40);
  if (header.kind != kind || !width_allowed(kind, header.item_bytes)) {
    fail(ExitCode::data, "{}: holds kind {} with {} bytes per item where kind {} was expected",
         path, static_cast<std::uint32_t>(header.kind), header.item_bytes,
         static_cast<std::uint32_t>(kind));
  }
  // Division, not multiplication: the item count comes from the file and may overflow.
  const std::uint64_t payload = file.size() - kStoreHeaderBytes;
  if (payload % header.item_bytes != 0 || payload / header.item_bytes != header.items) {
    fail(ExitCode::data,
         "{}: the header promises {} items of {} bytes, the file holds {} bytes of them: it is "
         "truncated or damaged; pack again",
         path, header.items, header.item_bytes, payload);
  }
  return header;
}

void check_starts(std::span<const std::uint64_t> starts, std::uint64_t total,
                  const std::string& path) {
  if (starts.empty() || starts.front() != 0) {
    fail(ExitCode::data, "{}: the index must begin with 0", path);
  }
  for (std::size_t i = 1; i < starts.size(); ++i) {
    if (starts[i] < starts[i - 1]) {
      fail(ExitCode::data, "{}: entry {} is {}, below the {} before it", path, i, starts[i],
           starts[i - 1]);
    }
  }
  if (starts.back() != total) {
    fail(ExitCode::data, "{}: the last entry is {}, expected {}", path, starts.back(), total);
  }
}

void check_rows(std::span<const std::uint64_t> rows, std::span<const Piece> pieces,
                std::span<const std::uint64_t> documents, std::uint64_t row_len,
                const std::string& rows_path, const std::string& pieces_path) {
  check_starts(rows, pieces.size(), rows_path);
  for (std::size_t row = 0; row + 1 < rows.size(); ++row) {
    std::uint64_t used = 0;
    for (std::uint64_t index = rows[row]; index < rows[row + 1]; ++index) {
      const Piece& piece = pieces[index];
      used += piece.length;
      const auto next = std::upper_bound(documents.begin(), documents.end(), piece.begin);
      if (piece.length == 0 || next == documents.begin() || next == documents.end() ||
          *next - piece.begin < piece.length) {
        fail(ExitCode::data, "{}: row {}: piece {} of {} tokens at {} is not inside one document",
             pieces_path, row, index, piece.length, piece.begin);
      }
    }
    if (used > row_len) {
      fail(ExitCode::data, "{}: row {} holds {} tokens, more than the row length {}", pieces_path,
           row, used, row_len);
    }
  }
}

}  // namespace belay::data
