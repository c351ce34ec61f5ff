#pragma once
// CRC-32C (Castagnoli, RFC 3720 appendix B.4), as TensorBoard's record files use it.

#include <array>
#include <cstdint>
#include <string_view>

namespace belay {

namespace detail {
constexpr std::array<std::uint32_t, 256> make_crc32c_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1U) != 0 ? 0x82F63B78U : 0U);
    table[byte] = value;
  }
  return table;
}
inline constexpr auto kCrc32cTable = make_crc32c_table();
}  // namespace detail

constexpr std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t crc = 0xFFFFFFFFU;
  for (const char c : bytes) {
    crc = detail::kCrc32cTable[(crc ^ static_cast<unsigned char>(c)) & 0xFFU] ^ (crc >> 8);
  }
  return ~crc;
}

// The masking keeps a CRC that is stored beside its data from looking like data with a CRC.
constexpr std::uint32_t masked_crc32c(std::string_view bytes) {
  const std::uint32_t crc = crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xA282EAD8U;
}

}  // namespace belay
