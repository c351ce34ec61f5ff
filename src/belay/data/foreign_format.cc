#include "belay/data/foreign_format.h"

#include <array>
#include <cstring>
#include <limits>
#include <optional>
#include <string_view>

#include "belay/base/check.h"
#include "belay/base/error.h"

namespace belay::data {
namespace {

constexpr std::array<char, 9> kMegatronMagic = {'M', 'M', 'I', 'D', 'I', 'D', 'X', 0, 0};
constexpr std::size_t kMegatronHeaderBytes = 34;

struct LlmcKind {
  std::int32_t magic;
  std::int32_t version;
  TokenType type;
};
constexpr std::array<LlmcKind, 2> kLlmcKinds = {
    {{20240520, 1, TokenType::u16}, {20240801, 7, TokenType::u32}}};

// Entries are unaligned in both formats, hence the copies.
template <class T>
T get(std::span<const std::byte> bytes, std::uint64_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

template <class T>
void append(std::vector<std::byte>& bytes, T value) {
  const std::size_t at = bytes.size();
  bytes.resize(at + sizeof(T));
  std::memcpy(bytes.data() + at, &value, sizeof(T));
}

std::optional<TokenType> megatron_type(std::uint8_t code) {
  switch (code) {
    case 1:
      return TokenType::u8;
    case 2:
      return TokenType::i8;
    case 3:
      return TokenType::i16;
    case 4:
      return TokenType::i32;
    case 5:
      return TokenType::i64;
    case 8:
      return TokenType::u16;
    default:
      return {};
  }
}

}  // namespace

MegatronIndex parse_megatron_index(std::span<const std::byte> file, std::uint64_t bin_bytes,
                                   const std::string& path) {
  if (file.size() < kMegatronHeaderBytes) {
    fail(ExitCode::data, "{}: {} bytes are too few for a Megatron index header of {}", path,
         file.size(), kMegatronHeaderBytes);
  }
  if (std::memcmp(file.data(), kMegatronMagic.data(), kMegatronMagic.size()) != 0) {
    fail(ExitCode::data, "{}: not a Megatron index: it does not begin with MMIDIDX", path);
  }
  if (const auto version = get<std::uint64_t>(file, 9); version != 1) {
    fail(ExitCode::data, "{}: Megatron index version {}, only 1 is known", path, version);
  }
  const auto code = get<std::uint8_t>(file, 17);
  const std::optional<TokenType> type = megatron_type(code);
  if (!type) fail(ExitCode::data, "{}: dtype code {} is no integer type of tokens", path, code);
  const auto sequences = get<std::uint64_t>(file, 18);
  const auto entries = get<std::uint64_t>(file, 26);

  // Bound both counts by the file's size before any sum, so that nothing overflows.
  const std::uint64_t room = file.size() - kMegatronHeaderBytes;
  const bool plausible = sequences <= room / 12 && entries <= room / 8 && entries > 0;
  const std::uint64_t needed = plausible ? 12 * sequences + 8 * entries : 0;
  if (!plausible || (room != needed && room != needed + sequences)) {
    fail(ExitCode::data,
         "{}: {} bytes after the header do not fit {} sequences and {} document entries", path,
         room, sequences, entries);
  }

  MegatronIndex index;
  index.type = *type;
  const auto width = static_cast<std::uint64_t>(width_of(*type));
  const std::uint64_t offsets = kMegatronHeaderBytes + 4 * sequences;
  const std::uint64_t documents = offsets + 8 * sequences;
  index.documents.reserve(entries);
  std::uint64_t tokens = 0;
  std::uint64_t sequence = 0;
  for (std::uint64_t entry = 0; entry < entries; ++entry) {
    const auto first = get<std::int64_t>(file, documents + 8 * entry);
    if (first < 0 || static_cast<std::uint64_t>(first) > sequences ||
        static_cast<std::uint64_t>(first) < sequence || (entry == 0 && first != 0) ||
        (entry + 1 == entries && static_cast<std::uint64_t>(first) != sequences)) {
      fail(ExitCode::data,
           "{}: document entry {} of {} is {}: entries go from 0 to the {} sequences without "
           "falling",
           path, entry, entries, first, sequences);
    }
    for (; sequence < static_cast<std::uint64_t>(first); ++sequence) {
      const auto length = get<std::int32_t>(file, kMegatronHeaderBytes + 4 * sequence);
      const auto offset = get<std::int64_t>(file, offsets + 8 * sequence);
      if (length < 0 || offset < 0 || static_cast<std::uint64_t>(offset) != tokens * width) {
        fail(ExitCode::data,
             "{}: sequence {} has length {} and offset {}; its tokens begin at byte {}", path,
             sequence, length, offset, tokens * width);
      }
      tokens += static_cast<std::uint64_t>(length);
    }
    index.documents.push_back(tokens);
  }
  if (bin_bytes % width != 0 || bin_bytes / width != tokens) {
    fail(ExitCode::data,
         "{}: describes {} tokens of {} bytes, but the .bin beside it holds {} "
         "bytes: one of the two is truncated or not its partner",
         path, tokens, width, bin_bytes);
  }
  return index;
}

void write_megatron_index(std::span<const std::uint64_t> starts, TokenType type,
                          const std::function<void(std::span<const std::byte>)>& sink) {
  BELAY_CHECK(!starts.empty() && (type == TokenType::u16 || type == TokenType::i32));
  constexpr std::size_t kChunk = std::size_t{1} << 16;
  const std::uint64_t documents = starts.size() - 1;
  std::vector<std::byte> chunk;
  chunk.reserve(kChunk + sizeof(std::uint64_t));
  const auto put = [&](auto value) {
    append(chunk, value);
    if (chunk.size() >= kChunk) {
      sink(chunk);
      chunk.clear();
    }
  };
  for (const char letter : kMegatronMagic) put(letter);
  put(std::uint64_t{1});
  put(static_cast<std::uint8_t>(type == TokenType::u16 ? 8 : 4));
  put(documents);
  put(documents + 1);
  for (std::uint64_t i = 0; i < documents; ++i) {
    const std::uint64_t length = starts[i + 1] - starts[i];
    if (length > static_cast<std::uint64_t>(std::numeric_limits<std::int32_t>::max())) {
      fail(ExitCode::data, "document {} has {} tokens; a Megatron index holds lengths up to {}", i,
           length, std::numeric_limits<std::int32_t>::max());
    }
    put(static_cast<std::int32_t>(length));
  }
  const auto width = static_cast<std::uint64_t>(width_of(type));
  for (std::uint64_t i = 0; i < documents; ++i) put(static_cast<std::int64_t>(starts[i] * width));
  for (std::uint64_t i = 0; i <= documents; ++i) put(static_cast<std::int64_t>(i));
  sink(chunk);
}

bool looks_like_llmc(std::span<const std::byte> file) {
  if (file.size() < sizeof(std::int32_t)) return false;
  const auto magic = get<std::int32_t>(file, 0);
  for (const LlmcKind& kind : kLlmcKinds) {
    if (kind.magic == magic) return true;
  }
  return false;
}

TokenView parse_llmc(std::span<const std::byte> file, const std::string& path) {
  if (file.size() < kLlmcHeaderBytes) {
    fail(ExitCode::data, "{}: {} bytes are too few for the llm.c header of {}", path, file.size(),
         kLlmcHeaderBytes);
  }
  const auto magic = get<std::int32_t>(file, 0);
  const auto version = get<std::int32_t>(file, 4);
  const auto tokens = get<std::int32_t>(file, 8);
  for (const LlmcKind& kind : kLlmcKinds) {
    if (kind.magic != magic) continue;
    if (kind.version != version) {
      fail(ExitCode::data, "{}: llm.c token file version {}, expected {}", path, version,
           kind.version);
    }
    const std::uint64_t payload = file.size() - kLlmcHeaderBytes;
    const auto width = static_cast<std::uint64_t>(width_of(kind.type));
    if (tokens < 0 || payload != static_cast<std::uint64_t>(tokens) * width) {
      fail(ExitCode::data, "{}: the header promises {} tokens of {} bytes, the file holds {} bytes",
           path, tokens, width, payload);
    }
    return {file.data() + kLlmcHeaderBytes, tokens, kind.type};
  }
  fail(ExitCode::data,
       "{}: {} is not the magic number of an llm.c token file; a Megatron .bin needs its .idx "
       "beside "
       "it, and what `belay pack` wrote is named by its directory",
       path, magic);
}

}  // namespace belay::data
