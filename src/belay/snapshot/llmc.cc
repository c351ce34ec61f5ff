#include "belay/snapshot/llmc.h"

#include <array>
#include <charconv>
#include <cstring>
#include <string_view>

#include "belay/base/check.h"
#include "belay/base/error.h"
#include "belay/snapshot/elements.h"

namespace belay {
namespace {

constexpr std::size_t kHeaderWords = 256;
constexpr std::size_t kHeaderBytes = kHeaderWords * sizeof(std::int32_t);
constexpr std::int32_t kMagic = 20240326;
constexpr std::int64_t kMaxLayers = 10'000;
constexpr std::int64_t kMaxWidth = std::int64_t{1} << 24;

std::int32_t word(std::span<const std::byte> file, std::size_t index) {
  std::int32_t value = 0;
  std::memcpy(&value, file.data() + index * sizeof(value), sizeof(value));
  return value;
}

// One kind of parameter: where our names put it and how many elements one layer has.
struct Section {
  std::string_view name;  // of a layer's parameter, without "layers.N."; or of a single one
  bool per_layer;
  std::uint64_t elements;  // of one layer
};

std::array<Section, 16> sections(const LlmcHeader& header) {
  const auto c = static_cast<std::uint64_t>(header.config.hidden);
  const auto vocab = static_cast<std::uint64_t>(header.padded_vocab);
  const auto rows = static_cast<std::uint64_t>(header.config.seq_len);
  return {{{"embedding.weight", false, vocab * c},
           {"positions.weight", false, rows * c},
           {"norm1.weight", true, c},
           {"norm1.bias", true, c},
           {"attention.qkv.weight", true, 3 * c * c},
           {"attention.qkv.bias", true, 3 * c},
           {"attention.out.weight", true, c * c},
           {"attention.out.bias", true, c},
           {"norm2.weight", true, c},
           {"norm2.bias", true, c},
           {"ffn.up.weight", true, 4 * c * c},
           {"ffn.up.bias", true, 4 * c},
           {"ffn.down.weight", true, 4 * c * c},
           {"ffn.down.bias", true, c},
           {"final_norm.weight", false, c},
           {"final_norm.bias", false, c}}};
}

// Elements before `name` of `layer`; with an empty name, elements of the whole body. The limits on
// the header's values keep every section within 64 bits; their sum is checked against the file.
std::uint64_t elements_before(const LlmcHeader& header, std::string_view name,
                              std::uint64_t layer) {
  const auto layers = static_cast<std::uint64_t>(header.config.layers);
  std::uint64_t sum = 0;
  for (const Section& section : sections(header)) {
    if (section.name == name) return sum + layer * section.elements;
    std::uint64_t size = 0;
    if (__builtin_mul_overflow(section.elements, section.per_layer ? layers : 1, &size) ||
        __builtin_add_overflow(sum, size, &sum)) {
      return UINT64_MAX;
    }
  }
  BELAY_CHECK(name.empty());
  return sum;
}

}  // namespace

bool is_llmc_model(std::span<const std::byte> file) {
  return file.size() >= kHeaderBytes && word(file, 0) == kMagic;
}

LlmcHeader parse_llmc(std::span<const std::byte> file, const std::string& path) {
  if (file.size() < kHeaderBytes) {
    fail(ExitCode::data, "{}: {} bytes are too few for an llm.c checkpoint", path, file.size());
  }
  if (word(file, 0) != kMagic) {
    fail(ExitCode::data, "{}: the magic number is {}, {} marks an llm.c GPT-2 checkpoint", path,
         word(file, 0), kMagic);
  }
  LlmcHeader header;
  const std::int32_t version = word(file, 1);
  if (version != 3 && version != 5) {
    fail(ExitCode::data, "{}: version {}; 3 (f32) and 5 (bf16) are read", path, version);
  }
  header.dtype = version == 3 ? DType::f32 : DType::bf16;
  const auto number = [&](std::size_t index, std::string_view name, std::int64_t limit) {
    const std::int64_t value = word(file, index);
    if (value < 1 || value > limit) {
      fail(ExitCode::data, "{}: {} is {}; 1 to {} is supported", path, name, value, limit);
    }
    return value;
  };
  ModelConfig& config = header.config;
  config = family_defaults(Family::gpt2);
  config.seq_len = number(2, "max_seq_len", INT32_MAX);
  config.vocab = number(3, "vocab_size", INT32_MAX);
  config.layers = number(4, "num_layers", kMaxLayers);
  config.heads = number(5, "num_heads", kMaxWidth);
  config.hidden = number(6, "channels", kMaxWidth);
  config.ffn = 4 * config.hidden;
  header.padded_vocab = number(7, "padded_vocab_size", INT32_MAX);
  if (header.padded_vocab < config.vocab) {
    fail(ExitCode::data, "{}: padded_vocab_size {} is below vocab_size {}", path,
         header.padded_vocab, config.vocab);
  }
  try {
    finish_config(config);
  } catch (const Error& error) {
    fail(ExitCode::data, "{}: {}", path, error.what());
  }
  const std::uint64_t body = file.size() - kHeaderBytes;
  const std::uint64_t elements = elements_before(header, "", 0);
  if (body % size_of(header.dtype) != 0 || body / size_of(header.dtype) != elements) {
    fail(ExitCode::data, "{}: {} bytes follow the header, but its sizes ask for {} elements of {}",
         path, body, elements, name_of(header.dtype));
  }
  return header;
}

LlmcFile::LlmcFile(const std::string& path)
    : file_(path), header_(parse_llmc(file_.bytes(), path)) {}

void LlmcFile::read(const ParameterTable& table, int index, std::span<float> dst) const {
  std::string_view name = table[index].name;
  std::uint64_t layer = 0;
  if (constexpr std::string_view kLayers = "layers."; name.starts_with(kLayers)) {
    name.remove_prefix(kLayers.size());
    const auto [stop, error] = std::from_chars(name.data(), name.data() + name.size(), layer);
    BELAY_CHECK(error == std::errc());
    name.remove_prefix(static_cast<std::size_t>(stop - name.data()) + 1);
  }
  BELAY_CHECK(dst.size() == static_cast<std::size_t>(table[index].elements()));
  // The embedding's padding rows follow the real ones, so leaving them out is reading less.
  const std::size_t width = size_of(header_.dtype);
  const std::uint64_t begin = elements_before(header_, name, layer);
  decode_elements(header_.dtype,
                  file_.bytes().subspan(kHeaderBytes + begin * width, dst.size() * width), dst);
}

}  // namespace belay
