#pragma once
// Token files of other programs: Megatron-LM's indexed dataset (.bin beside .idx) and llm.c's token
// files. Parsing works on bytes in memory and takes no size from the file on trust.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "belay/data/token_view.h"

namespace belay::data {

// PREFIX.idx: "MMIDIDX\0\0", u64 version 1, u8 dtype code, u64 sequences, u64 documents + 1, then
// i32 lengths, i64 byte offsets into the .bin, i64 first sequence of each document (and the total).
// A multimodal set has one more byte per sequence.
struct MegatronIndex {
  TokenType type = TokenType::u16;
  std::vector<std::uint64_t> documents;  // token position of each document's start, and the total
};

// `bin_bytes` is the size of PREFIX.bin. Error(data) names `path` and the offending value.
MegatronIndex parse_megatron_index(std::span<const std::byte> file, std::uint64_t bin_bytes,
                                   const std::string& path);

// Writes the .idx of documents of one sequence each through `sink`, piece by piece; starts as in
// MegatronIndex. Types u16 and i32. Error(data) if a document is longer than i32 can tell.
void write_megatron_index(std::span<const std::uint64_t> starts, TokenType type,
                          const std::function<void(std::span<const std::byte>)>& sink);

inline constexpr std::size_t kLlmcHeaderBytes = 1024;

// True if the file begins with the magic of an llm.c token file, whatever follows.
bool looks_like_llmc(std::span<const std::byte> file);

// Header of 256 i32: magic 20240520 version 1 (GPT-2, u16) or 20240801 version 7 (Llama 3, u32),
// word 2 the number of tokens. The view is into `file`.
TokenView parse_llmc(std::span<const std::byte> file, const std::string& path);

}  // namespace belay::data
