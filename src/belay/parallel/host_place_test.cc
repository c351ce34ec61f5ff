#include "belay/parallel/host_place.h"

#include <gtest/gtest.h>

namespace belay {
namespace {

TEST(HostPlaceTest, RanksOfAHostAreNumberedInOrder) {
  const std::vector<int> host_of = {0, 1, 0, 1, 1};
  for (const auto& [rank, ranks, place] :
       {std::tuple(0, 2, 0), {1, 3, 0}, {2, 2, 1}, {3, 3, 1}, {4, 3, 2}}) {
    EXPECT_EQ(place_on_host(host_of, rank).ranks, ranks) << rank;
    EXPECT_EQ(place_on_host(host_of, rank).rank, place) << rank;
  }
}

}  // namespace
}  // namespace belay
