#include "belay/train/rank_group.h"

#include <new>

#include "belay/train/ranks_harness.h"

namespace belay {
namespace {

// Whatever a rank throws, the others are told instead of being left waiting.
TEST(RankGroupTest, AnyExceptionOfARankEndsAll) {
  const auto errors = testing::errors_of_ranks(3, [](comm::Communicator& communicator) {
    const RankGroup ranks(&communicator);
    ranks.together([] {});
    ranks.together([&] {
      if (ranks.rank() == 1) throw std::bad_alloc();
    });
    ADD_FAILURE() << "rank " << ranks.rank() << " goes on";
  });
  for (std::size_t rank = 0; rank < errors.size(); ++rank) {
    EXPECT_EQ(errors[rank].code(), ExitCode::capacity) << rank;
    EXPECT_EQ(std::string(errors[rank].what()).empty(), rank != 1) << errors[rank].what();
  }
}

TEST(RankGroupTest, WhatFailsAlikeIsSaidOnce) {
  const auto errors = testing::errors_of_ranks(3, [](comm::Communicator& communicator) {
    RankGroup(&communicator).alike([] { fail(ExitCode::numerics, "step 4"); });
  });
  for (std::size_t rank = 0; rank < errors.size(); ++rank) {
    EXPECT_EQ(errors[rank].code(), ExitCode::numerics);
    EXPECT_STREQ(errors[rank].what(), rank == 0 ? "step 4" : "");
  }
}

}  // namespace
}  // namespace belay
