#include "belay/parallel/batch_share.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "belay/parallel/stable_sum.h"

namespace belay {
namespace {

TEST(BatchShareTest, EveryMicroBatchBelongsToOneRank) {
  for (const int ranks : {1, 2, 3, 5, 8}) {
    for (std::int64_t micro_batches = ranks; micro_batches < 20; ++micro_batches) {
      std::set<std::int64_t> taken;
      std::int64_t rounds = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const BatchShare share{rank, ranks, 4, micro_batches};
        for (std::int64_t a = 0; a < share.count(); ++a) {
          EXPECT_TRUE(taken.insert(share.number(a)).second);
          EXPECT_LT(share.number(a), micro_batches);
        }
        EXPECT_LE(share.rounds() - share.count(), 1);
        rounds = std::max(rounds, share.count());
        EXPECT_EQ(share.loading(7).offset, rank * 4);
        EXPECT_EQ(share.loading(7).step_rows, 4 * micro_batches);
      }
      EXPECT_EQ(taken.size(), static_cast<std::size_t>(micro_batches));
      EXPECT_EQ(rounds, (BatchShare{0, ranks, 4, micro_batches}.rounds()));
    }
  }
}

// The sum of items [first, last) by the definition of the order.
double tree(const std::vector<double>& items, std::size_t first, std::size_t last) {
  if (last - first == 1) return items[first];
  std::size_t half = 1;
  while (2 * half < last - first) half *= 2;
  return tree(items, first, first + half) + tree(items, first + half, last);
}

TEST(StableScalarTest, AddsAsABalancedTree) {
  StableScalar sum;
  EXPECT_EQ(sum.finish(), 0.0);
  std::vector<double> items;
  for (int i = 0; i < 40; ++i) {
    // So different in size that most other orders give other bits.
    items.push_back(std::ldexp(1.0 + i / 64.0, (i * 37) % 61 - 30));
    for (const double item : items) sum.add(item);
    EXPECT_EQ(sum.finish(), tree(items, 0, items.size())) << items.size();
  }
}

}  // namespace
}  // namespace belay
