#include "belay/data/ordered_pipeline.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <string>

namespace belay::data {
namespace {

// Consumes squares of 0..count-1; `fail_at` numbers make the named stage throw.
std::vector<int> squares(int workers, int depth, int count, int fail_produce = -1,
                         int fail_transform = -1, int fail_consume = -1) {
  int produced = 0;
  std::vector<int> result;
  run_ordered<int, int>(
      workers, depth,
      [&](int& item) {
        if (produced == fail_produce) throw std::runtime_error("produce");
        if (produced == count) return false;
        item = produced++;
        return true;
      },
      [&](const int& item, int& out) {
        if (item == fail_transform) throw std::runtime_error("transform");
        out = item * item;
      },
      [&](const int& out) {
        if (fail_consume >= 0 && out == fail_consume * fail_consume) {
          throw std::runtime_error("consume");
        }
        result.push_back(out);
      });
  return result;
}

TEST(OrderedPipeline, KeepsTheOrderForAnyNumberOfWorkers) {
  const std::vector<int> expected = squares(1, 1, 500);
  ASSERT_EQ(expected.size(), 500U);
  EXPECT_EQ(expected[499], 499 * 499);
  for (const int workers : {1, 2, 5}) {
    for (const int depth : {1, 2, 9}) EXPECT_EQ(squares(workers, depth, 500), expected);
  }
  EXPECT_TRUE(squares(3, 4, 0).empty());
}

TEST(OrderedPipeline, TheEarliestErrorWinsWhateverFinishesFirst) {
  const auto message = [](int produce, int transform, int consume) -> std::string {
    try {
      squares(3, 6, 100, produce, transform, consume);
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "none";
  };
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(message(50, -1, -1), "produce");
    EXPECT_EQ(message(-1, 50, -1), "transform");
    EXPECT_EQ(message(-1, -1, 50), "consume");
    EXPECT_EQ(message(60, 50, -1), "transform");
    EXPECT_EQ(message(50, -1, 40), "consume");
    EXPECT_EQ(message(0, -1, -1), "produce");
  }
}

TEST(OrderedPipeline, HoldsNoMoreItemsThanItsDepth) {
  std::atomic<int> alive = 0;
  int most = 0;
  int produced = 0;
  run_ordered<int, int>(
      2, 3,
      [&](int&) {
        ++alive;
        return produced++ < 100;
      },
      [](const int&, int&) {},
      [&](const int&) {
        most = std::max(most, alive.load());
        --alive;
      });
  EXPECT_LE(most, 4);  // one more may have been begun when the end was found
}

}  // namespace
}  // namespace belay::data
