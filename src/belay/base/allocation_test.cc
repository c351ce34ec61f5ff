#include <gtest/gtest.h>

#include <memory>

#include "belay/base/allocation_count.h"

namespace belay {
namespace {

TEST(AllocationCountTest, CountsEveryKindOfNew) {
  struct alignas(256) Wide {
    char bytes[256];
  };
  const std::int64_t before = allocation_count();
  const auto one = std::make_unique<int>(1);
  const auto many = std::make_unique<int[]>(100);
  const auto wide = std::make_unique<Wide>();
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(wide.get()) % 256, 0U);
  EXPECT_EQ(allocation_count() - before, 3);
}

}  // namespace
}  // namespace belay
