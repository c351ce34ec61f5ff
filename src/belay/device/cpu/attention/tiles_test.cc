// What the cutting into tiles computes: every visible pair once, no tile without one, and little
// else.

#include "belay/device/cpu/attention/tiles.h"

#include <gtest/gtest.h>

#include "belay/device/cpu/attention/problem.h"

namespace belay::attention {
namespace {

struct Coverage {
  std::int64_t visible = 0;   // pairs
  std::int64_t computed = 0;  // pairs of the tiles visited
};

// Visits all tiles of batch row 0 and checks each.
Coverage cover(const AttentionShape& shape, const std::vector<std::int32_t>& documents) {
  const Tensor doc_begin =
      documents.empty()
          ? Tensor{}
          : Tensor{const_cast<std::int32_t*>(documents.data()), DType::i32, {shape.q_len}};
  const std::int64_t offset = shape.kv_len - shape.q_len;
  Coverage coverage;
  std::vector<std::int32_t> times(static_cast<std::size_t>(shape.q_len * shape.kv_len));
  for (std::int64_t tile = 0; tile * kTile < shape.q_len; ++tile) {
    const QueryTile queries(shape, doc_begin, 0, tile, shape.kv_len);
    queries.for_each_key_tile([&](const KeyTile& keys) {
      EXPECT_LE(keys.last, queries.columns());
      std::int64_t visible = 0;
      std::int64_t hidden = 0;
      for (std::int64_t column = keys.first; column < keys.last; ++column) {
        const std::int64_t query = queries.first + column;
        if (query >= shape.q_len) continue;
        const std::int64_t begin =
            documents.empty() ? 0 : documents[static_cast<std::size_t>(query)];
        for (std::int64_t key = keys.begin; key < keys.begin + keys.count; ++key) {
          EXPECT_TRUE(key >= 0 && key < shape.kv_len);
          ++times[static_cast<std::size_t>(query * shape.kv_len + key)];
          ++(key >= begin && key <= offset + query ? visible : hidden);
        }
      }
      EXPECT_GT(visible, 0) << "a tile without a visible pair: query tile " << tile << ", key "
                            << keys.begin;
      EXPECT_TRUE(keys.masked || hidden == 0);
      coverage.computed += (keys.last - keys.first) * keys.count;
      coverage.visible += visible;
    });
  }
  for (std::int64_t query = 0; query < shape.q_len; ++query) {
    const std::int64_t begin = documents.empty() ? 0 : documents[static_cast<std::size_t>(query)];
    for (std::int64_t key = 0; key < shape.kv_len; ++key) {
      const std::int32_t count = times[static_cast<std::size_t>(query * shape.kv_len + key)];
      EXPECT_LE(count, 1);
      if (key >= begin && key <= offset + query) {
        EXPECT_EQ(count, 1) << query << " " << key;
      }
    }
  }
  return coverage;
}

TEST(AttentionTilesTest, EveryVisiblePairOnceAndNoTileWithoutOne) {
  for (const auto& [q_len, kv_len] :
       {std::pair{1, 1}, {1, 300}, {64, 64}, {65, 65}, {200, 333}, {257, 257}, {500, 500}}) {
    for (const Documents documents : {Documents::none, Documents::random, Documents::padded_tail}) {
      for (const std::uint32_t seed : {1U, 2U, 3U}) {
        const Problem problem({make_shape(1, q_len, kv_len, 1, 1, 4), DType::f32, documents, seed},
                              DType::f32);
        SCOPED_TRACE(testing::Message() << q_len << " of " << kv_len << " seed " << seed);
        EXPECT_GT(cover(problem.spec.shape, problem.documents).visible, 0);
      }
    }
  }
}

std::vector<std::int32_t> documents_of(std::int64_t seq, std::int64_t length) {
  std::vector<std::int32_t> begins;
  for (std::int64_t i = 0; i < seq; ++i) {
    begins.push_back(static_cast<std::int32_t>(i / length * length));
  }
  return begins;
}

// Pairs computed in vain are those of the diagonal's steps, so their share falls with the length.
TEST(AttentionTilesTest, WorkFollowsTheVisiblePairs) {
  const AttentionShape shape = make_shape(1, 1024, 1024, 1, 1, 4);
  const Coverage whole = cover(shape, {});
  EXPECT_EQ(whole.visible, 1024 * 1025 / 2);
  EXPECT_LT(static_cast<double>(whole.computed), 1.08 * static_cast<double>(whole.visible));
  const Coverage eighths = cover(shape, documents_of(1024, 128));
  EXPECT_EQ(eighths.visible, 8 * 128 * 129 / 2);
  EXPECT_LT(eighths.computed, whole.computed / 6);
  // Documents that begin anywhere.
  const Coverage odd = cover(shape, documents_of(1024, 100));
  EXPECT_LT(odd.computed, whole.computed / 4);
  // Padding, where each token sees itself alone.
  const Coverage padding = cover(shape, documents_of(1024, 1));
  EXPECT_EQ(padding.visible, 1024);
  EXPECT_LE(padding.computed, 1024 * kTile);
}

}  // namespace
}  // namespace belay::attention
