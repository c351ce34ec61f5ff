#include "belay/comm/compression/sparse_code.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "belay/base/error.h"

namespace belay::comm {
namespace {

constexpr IndexCode kAll[] = {IndexCode::words, IndexCode::halves, IndexCode::bytes,
                              IndexCode::mask};

std::vector<std::uint32_t> draw(std::int64_t elements, std::int64_t chosen) {
  std::mt19937 random(7);
  std::vector<std::uint32_t> indices;
  std::int64_t left = chosen;
  for (std::int64_t i = 0; i < elements && left > 0; ++i) {
    const auto rest = static_cast<std::uint64_t>(elements - i);
    if (random() % rest >= static_cast<std::uint64_t>(left)) continue;
    indices.push_back(static_cast<std::uint32_t>(i));
    --left;
  }
  return indices;
}

TEST(SparseCodeTest, DecodesWhatItEncodes) {
  for (const std::int64_t elements : {1, 63, 64, 65, 255, 256, 257, 65535, 65536, 65537, 200000}) {
    for (const double ratio : {0.0, 0.001, 0.1, 0.9, 1.0}) {
      const auto chosen = std::max<std::int64_t>(
          1, static_cast<std::int64_t>(ratio * static_cast<double>(elements)));
      const std::vector<std::uint32_t> indices = draw(elements, chosen);
      ASSERT_EQ(std::ssize(indices), chosen);
      for (const IndexCode code : kAll) {
        std::vector<std::byte> coded(index_bytes(code, elements, chosen) + 1, std::byte{0xa5});
        encode_indices(code, elements, indices, coded.data());
        EXPECT_EQ(coded.back(), std::byte{0xa5}) << "past the end, " << name_of(code);
        std::vector<std::uint32_t> decoded(indices.size());
        decode_indices(code, elements, coded.data(), decoded);
        EXPECT_EQ(decoded, indices) << name_of(code) << ", " << chosen << " of " << elements;
      }
    }
  }
}

TEST(SparseCodeTest, TheShortestIsTaken) {
  EXPECT_EQ(best_index_code(1'000'000, 1), IndexCode::words);
  EXPECT_EQ(best_index_code(1'000'000, 1000), IndexCode::halves);
  EXPECT_EQ(best_index_code(1'000'000, 50'000), IndexCode::bytes);
  EXPECT_EQ(best_index_code(1'000'000, 500'000), IndexCode::mask);
}

TEST(SparseCodeTest, DamageIsRefused) {
  const std::vector<std::uint32_t> indices = draw(1000, 100);
  for (const IndexCode code : kAll) {
    std::vector<std::byte> coded(index_bytes(code, 1000, 100));
    encode_indices(code, 1000, indices, coded.data());
    coded[0] ^= std::byte{0xff};
    coded[1] ^= std::byte{0xff};
    std::vector<std::uint32_t> decoded(100);
    try {
      decode_indices(code, 1000, coded.data(), decoded);
      ADD_FAILURE() << name_of(code);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::communication);
    }
  }
}

}  // namespace
}  // namespace belay::comm
