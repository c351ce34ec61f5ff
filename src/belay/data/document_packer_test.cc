#include "belay/data/document_packer.h"

#include <gtest/gtest.h>

#include "belay/base/philox.h"

namespace belay::data {
namespace {

using Rows = std::vector<std::vector<std::pair<std::uint64_t, std::uint32_t>>>;

Rows pack(std::int64_t row_len, const std::vector<std::uint64_t>& lengths) {
  Rows rows;
  DocumentPacker packer(row_len, [&](std::span<const Piece> pieces) {
    rows.emplace_back();
    for (const Piece& piece : pieces) rows.back().emplace_back(piece.begin, piece.length);
  });
  for (const std::uint64_t length : lengths) {
    packer.append(length / 3, {});
    packer.append(length - length / 3, {});
    packer.end_document();
  }
  packer.finish();
  return rows;
}

TEST(DocumentPacker, KeepsShortDocumentsWholeAndCutsLongOnes) {
  // 20 fills two rows and leaves 4. Longest first: 5, then 4 in a row of its own, then 3 where it
  // fits best, beside the 5.
  EXPECT_EQ(pack(8, {5, 20, 3}), (Rows{{{5, 8}}, {{13, 8}}, {{0, 5}, {25, 3}}, {{21, 4}}}));
  EXPECT_EQ(pack(4, {4}), (Rows{{{0, 4}}}));
}

TEST(DocumentPacker, PlacesEachTokenOnceAndPadsLittle) {
  constexpr std::int64_t kRowLen = 256;
  std::vector<std::uint64_t> lengths;
  std::uint64_t total = 0;
  for (std::uint64_t i = 0; i < 20000; ++i) {
    lengths.push_back(1 + random_block({.seed = 5}, i)[0] % 400);
    total += lengths.back();
  }
  const Rows rows = pack(kRowLen, lengths);
  std::vector<bool> seen(total);
  for (const auto& row : rows) {
    std::uint64_t used = 0;
    for (const auto& [begin, length] : row) {
      used += length;
      for (std::uint64_t i = begin; i < begin + length; ++i) {
        ASSERT_FALSE(seen[i]);
        seen[i] = true;
      }
    }
    ASSERT_LE(used, static_cast<std::uint64_t>(kRowLen));
  }
  EXPECT_EQ(std::count(seen.begin(), seen.end(), true), static_cast<std::ptrdiff_t>(total));
  const double places = static_cast<double>(rows.size()) * kRowLen;
  EXPECT_LT(1.0 - static_cast<double>(total) / places, 0.01);
}

}  // namespace
}  // namespace belay::data
