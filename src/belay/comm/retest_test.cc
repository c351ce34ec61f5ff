#include "belay/comm/retest.h"

#include <gtest/gtest.h>

#include <vector>

namespace belay::comm {
namespace {

// Steps until the link is tested again.
std::int64_t pause_after(const Retest& retest, std::int64_t step) {
  std::int64_t pause = 1;
  while (!retest.due(step + pause)) ++pause;
  return pause;
}

TEST(Retest, ASlowLinkIsTestedLessAndLessOften) {
  Retest retest;
  EXPECT_TRUE(retest.due(1));
  std::int64_t step = 100;
  retest.found_slow(step);
  std::vector<std::int64_t> pauses;
  for (int test = 0; test < 9; ++test) {
    pauses.push_back(pause_after(retest, step));
    step += pauses.back();
    retest.still_slow(step);
  }
  EXPECT_EQ(pauses, (std::vector<std::int64_t>{8, 16, 32, 64, 128, 256, 512, 1024, 1024}));
}

TEST(Retest, AHealedLinkIsWatchedAsFromTheStart) {
  Retest retest;
  retest.found_slow(1);
  for (int test = 0; test < 5; ++test) retest.still_slow(100);
  retest.healed(300);
  EXPECT_EQ(pause_after(retest, 300), 8);
  retest.found_slow(400);
  EXPECT_EQ(pause_after(retest, 400), 8);
}

TEST(Retest, ALinkThatWasSuspectedWronglyIsNotForgotten) {
  Retest retest;
  std::int64_t step = 1;
  for (int test = 0; test < 20; ++test) {
    retest.wrongly_suspected(step);
    step += pause_after(retest, step);
  }
  retest.wrongly_suspected(step);
  EXPECT_EQ(pause_after(retest, step), Retest::kLongestDoubt);
  step += Retest::kLongestDoubt;
  retest.found_slow(step);
  EXPECT_EQ(pause_after(retest, step), 8);
}

}  // namespace
}  // namespace belay::comm
