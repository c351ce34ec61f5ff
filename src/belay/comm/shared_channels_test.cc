#include "belay/comm/shared_channels.h"

#include <gtest/gtest.h>

#include <vector>

namespace belay::comm {
namespace {

// Schedules are cut by it, and all ranks must cut alike.
TEST(SharedChannels, WhatCanBePostedIsTheLeastOfAllHosts) {
  std::vector<int> host_of(48);
  for (std::size_t rank = 32; rank < 48; ++rank) host_of[rank] = 1;
  EXPECT_LT(SharedChannels::post_bytes_for(32), SharedChannels::post_bytes_for(16));
  EXPECT_EQ(SharedChannels::least_post_bytes(host_of), SharedChannels::post_bytes_for(32));
  // The order in which ranks were dealt out means nothing, and a rank may be alone.
  EXPECT_EQ(SharedChannels::least_post_bytes(std::vector<int>{0, 1, 0, 2}),
            SharedChannels::post_bytes_for(2));
}

}  // namespace
}  // namespace belay::comm
