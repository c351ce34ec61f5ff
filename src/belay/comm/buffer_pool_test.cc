#include "belay/comm/buffer_pool.h"

#include <gtest/gtest.h>

namespace belay::comm {
namespace {

TEST(BufferPool, TheSmallestThatIsLargeEnoughServes) {
  BufferPool pool(1000);
  BufferPool::Buffer large = pool.take(300);
  BufferPool::Buffer small = pool.take(100);
  const std::byte* const small_data = small.data.get();
  pool.give_back(std::move(large));
  pool.give_back(std::move(small));
  EXPECT_EQ(pool.kept_bytes(), 400U);
  const BufferPool::Buffer again = pool.take(90);
  EXPECT_EQ(again.data.get(), small_data);
  EXPECT_EQ(again.bytes, 100U);
  EXPECT_EQ(pool.take(200).bytes, 300U);
  EXPECT_EQ(pool.take(200).bytes, 200U);
}

TEST(BufferPool, KeepsNoMoreThanItsBound) {
  BufferPool pool(1000);
  for (const std::size_t bytes : {400U, 100U, 600U, 500U}) pool.give_back(pool.take(bytes));
  std::vector<BufferPool::Buffer> taken;
  for (const std::size_t bytes : {100U, 400U, 500U, 600U}) taken.push_back(pool.take(bytes));
  for (BufferPool::Buffer& buffer : taken) {
    pool.give_back(std::move(buffer));
    EXPECT_LE(pool.kept_bytes(), 1000U);
  }
  pool.give_back(pool.take(5000));
  EXPECT_LE(pool.kept_bytes(), 1000U);
  pool.give_back({});
}

}  // namespace
}  // namespace belay::comm
