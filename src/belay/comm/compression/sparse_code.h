#pragma once
// How the places of k chosen elements among n are written: sizes depend on k and n alone, so that
// all ranks know them without being told.
//   words   32 bits each
//   halves  16 bits each within runs of 65536 elements, and a 32-bit count per run
//   bytes   8 bits each within runs of 256 elements, and a 16-bit count per run
//   mask    one bit per element

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace belay::comm {

enum class IndexCode : std::uint8_t { words, halves, bytes, mask };
inline constexpr int kIndexCodes = 4;

std::string_view name_of(IndexCode code);

std::size_t index_bytes(IndexCode code, std::int64_t elements, std::int64_t chosen);
// The one with the fewest bytes; the first of equals.
IndexCode best_index_code(std::int64_t elements, std::int64_t chosen);

// indices: ascending, below `elements`. dst: index_bytes(), at any address.
void encode_indices(IndexCode code, std::int64_t elements, std::span<const std::uint32_t> indices,
                    std::byte* dst);
// Fills `indices`. Error(communication) if the bytes are not those of so many ascending indices.
void decode_indices(IndexCode code, std::int64_t elements, const std::byte* src,
                    std::span<std::uint32_t> indices);

}  // namespace belay::comm
