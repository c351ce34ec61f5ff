#include "belay/model/kv_blocks.h"

#include <gtest/gtest.h>

#include <set>

#include "belay/base/error.h"

namespace belay {
namespace {

KvCacheConfig paged(std::int64_t block, std::int64_t sequences, std::int64_t tokens,
                    std::int64_t pool = 0) {
  return {KvStorage::paged, block, sequences, tokens, pool};
}

TEST(KvBlocksTest, SequencesShareAPoolWithoutOverlap) {
  KvBlocks blocks(paged(4, 3, 10));
  EXPECT_EQ(blocks.pool_blocks(), 9);
  for (std::int64_t tokens = 1; tokens <= 10; ++tokens) {
    for (std::int64_t sequence = 0; sequence < 3; ++sequence) blocks.extend(sequence, tokens);
  }
  std::set<std::int32_t> rows;
  for (std::int64_t sequence = 0; sequence < 3; ++sequence) {
    EXPECT_EQ(blocks.blocks(sequence).size(), 3U);
    for (std::int64_t position = 0; position < 10; ++position) {
      const std::int32_t row = blocks.row(sequence, position);
      EXPECT_TRUE(rows.insert(row).second);
      EXPECT_LT(row, blocks.pool_rows());
      EXPECT_EQ(row % 4, position % 4);
    }
  }
  EXPECT_EQ(blocks.used(), 9);
}

TEST(KvBlocksTest, BlocksAreGivenOutAsSequencesGrowAndComeBack) {
  KvBlocks blocks(paged(4, 2, 16, 18));  // 4 blocks: 2 tokens are no block
  EXPECT_EQ(blocks.pool_blocks(), 4);
  blocks.extend(0, 4);
  EXPECT_EQ(blocks.used(), 1);
  blocks.extend(0, 5);
  EXPECT_EQ(blocks.used(), 2);
  EXPECT_EQ(blocks.missing(1, 8), 0);
  EXPECT_EQ(blocks.missing(1, 9), 1);
  EXPECT_EQ(blocks.missing(1, 16), 2);
  EXPECT_EQ(blocks.missing(0, 16), 0);
  const std::int32_t before = blocks.row(0, 0);
  blocks.extend(1, 8);
  EXPECT_EQ(blocks.row(0, 0), before);
  blocks.release(0);
  EXPECT_EQ(blocks.used(), 2);
  EXPECT_TRUE(blocks.blocks(0).empty());
  EXPECT_EQ(blocks.missing(1, 16), 0);
  blocks.extend(1, 16);
  EXPECT_EQ(blocks.used(), 4);
  EXPECT_EQ(blocks.peak(), 4);
}

TEST(KvBlocksTest, ContiguousSequencesHaveOneBlockEach) {
  KvBlocks blocks({KvStorage::contiguous, 16, 3, 100, 0});
  EXPECT_EQ(blocks.block_tokens(), 100);
  EXPECT_EQ(blocks.pool_blocks(), 3);
  blocks.extend(2, 1);
  blocks.extend(2, 100);
  EXPECT_EQ(blocks.used(), 1);
  EXPECT_EQ(blocks.row(2, 99), blocks.row(2, 0) + 99);
}

TEST(KvBlocksTest, RefusesSizesThatCannotBe) {
  for (const KvCacheConfig& config : {paged(0, 1, 8), paged(4, 0, 8), paged(4, 1, 0),
                                      paged(16, std::int64_t{1} << 20, std::int64_t{1} << 20)}) {
    try {
      const KvBlocks blocks(config);
      ADD_FAILURE() << "not refused";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::usage);
    }
  }
  EXPECT_THROW(parse_kv_storage("page"), Error);
  EXPECT_EQ(parse_kv_storage("paged"), KvStorage::paged);
}

}  // namespace
}  // namespace belay
