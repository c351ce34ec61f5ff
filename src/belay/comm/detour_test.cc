// Ways around slow links: proved right, and free of the link.

#include "belay/comm/detour.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "belay/comm/checker.h"
#include "belay/comm/thread_ranks.h"

namespace belay::comm {
namespace {

std::int64_t elements_over(const Schedule& schedule, Link link) {
  std::int64_t elements = 0;
  for (const Step& step : program_of(schedule, link.from).steps) {
    const bool sends = step.kind == StepKind::send || step.kind == StepKind::post;
    if (sends && step.peer == link.to) elements += step.count;
  }
  return elements;
}

Layout layout_around(const std::vector<Link>& slow, int ranks) {
  Layout layout;
  layout.slow = slow;
  layout.ring = *ring_around(slow, ranks, {}, {});
  return layout;
}

TEST(Detour, AllReducesLeaveTheLinkAloneAndStayRight) {
  for (const int p : {4, 5, 8, 9, 16}) {
    for (const Link link : {Link{0, 1}, Link{1, 0}, Link{2, 3}, Link{p - 1, 0}, Link{0, p / 2}}) {
      const Layout layout = layout_around({link}, p);
      for (const bool stable : {false, true}) {
        for (const Algorithm algorithm : {Algorithm::ring, Algorithm::double_ring,
                                          Algorithm::segmented_ring, Algorithm::direct}) {
          for (const std::int64_t count : {std::int64_t{0}, std::int64_t{3}, std::int64_t{1000}}) {
            ScheduleKey key{.algorithm = algorithm, .ranks = p};
            key.count = count;
            key.segments = 3;
            key.order_stable = stable;
            const Schedule schedule = make_schedule(key, layout);
            for (const bool shared : {false, true}) {
              EXPECT_EQ(check_schedule(schedule, {.shared = shared, .order_stable = stable}), "")
                  << name_of(algorithm) << " " << p;
            }
            EXPECT_EQ(elements_over(schedule, link), 0)
                << name_of(algorithm) << " " << p << " " << link.from << "->" << link.to;
          }
        }
      }
    }
  }
}

TEST(Detour, RingsOfOwnBlocksGoAroundToo) {
  for (const int p : {4, 7, 8}) {
    const Link link{1, 2};
    const Layout layout = layout_around({link}, p);
    for (const Collective collective : {Collective::reduce_scatter, Collective::all_gather}) {
      ScheduleKey key{.collective = collective, .algorithm = Algorithm::ring, .ranks = p};
      key.count = 1000;
      const Schedule schedule = make_schedule(key, layout);
      EXPECT_EQ(check_schedule(schedule, {.shared = true}), "") << name_of(collective) << " " << p;
      EXPECT_EQ(elements_over(schedule, link), 0) << name_of(collective) << " " << p;
    }
  }
}

TEST(Detour, RingsPassManyLinksAndKeepDomainsTogether) {
  const std::vector<int> domains = {0, 0, 0, 0, 1, 1, 1, 1};
  const std::vector<Link> slow = {{0, 1}, {3, 4}, {5, 6}, {7, 0}};
  const auto order = ring_around(slow, 8, {}, domains);
  ASSERT_TRUE(order);
  EXPECT_EQ(std::set<int>(order->begin(), order->end()).size(), 8U);
  int crossings = 0;
  for (std::size_t i = 0; i < 8; ++i) {
    const Link link{(*order)[i], (*order)[(i + 1) % 8]};
    EXPECT_EQ(std::count(slow.begin(), slow.end(), link), 0);
    EXPECT_EQ(std::count(slow.begin(), slow.end(), Link{link.to, link.from}), 0);
    crossings +=
        domains[static_cast<std::size_t>(link.from)] != domains[static_cast<std::size_t>(link.to)];
  }
  EXPECT_EQ(crossings, 2);
  // Nothing slow: nothing changes.
  std::vector<int> natural(8);
  std::iota(natural.begin(), natural.end(), 0);
  EXPECT_EQ(*ring_around({}, 8, {}, {}), natural);
}

// As often as links fail in a large group, and as little is exchanged.
TEST(Detour, RingsOfManyRanksGoAround) {
  constexpr int kRanks = 2048;
  std::vector<int> domains;
  for (int rank = 0; rank < kRanks; ++rank) domains.push_back(rank / 8);
  const std::vector<Link> slow = {{1, 2}, {7, 8}, {2047, 0}};
  const auto order = ring_around(slow, kRanks, {}, domains);
  ASSERT_TRUE(order);
  EXPECT_EQ(std::set<int>(order->begin(), order->end()).size(), std::size_t{kRanks});
  int crossings = 0;
  int moved = 0;
  for (int i = 0; i < kRanks; ++i) {
    const auto place = static_cast<std::size_t>(i);
    const Link link{(*order)[place], (*order)[(place + 1) % kRanks]};
    EXPECT_EQ(std::count(slow.begin(), slow.end(), link), 0);
    crossings += link.from / 8 != link.to / 8;
    moved += link.from != i;
  }
  EXPECT_EQ(crossings, kRanks / 8);
  EXPECT_LE(moved, 6);
  // What is not slow stays where it was given, whatever the domains.
  std::vector<int> given(kRanks);
  for (int i = 0; i < kRanks; ++i) given[static_cast<std::size_t>(i)] = i * 5 % kRanks;
  EXPECT_EQ(*ring_around({}, kRanks, given, domains), given);
}

TEST(Detour, ThreeRanksTurnTheRingAndTwoCannot) {
  const auto turned = ring_around(std::vector<Link>{{0, 1}}, 3, {}, {});
  ASSERT_TRUE(turned);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_FALSE((*turned)[i] == 0 && (*turned)[(i + 1) % 3] == 1);
  }
  EXPECT_FALSE(ring_around(std::vector<Link>{{0, 1}}, 2, {}, {}));
  // All links of a rank.
  std::vector<Link> slow;
  for (int other = 1; other < 5; ++other) slow.push_back({other, 0});
  EXPECT_FALSE(ring_around(slow, 5, {}, {}));
}

TEST(Detour, WhereNobodyIsLeftBlocksAreEven) {
  const std::vector<Link> slow = {{0, 1}, {1, 2}, {2, 0}};
  const Blocks blocks = blocks_around(slow, {0, 99}, 3, true);
  EXPECT_EQ(blocks.bounds, Blocks::even(0, 99, 3).bounds);
}

std::vector<float> sums(int ranks, bool stable, Algorithm algorithm,
                        const std::vector<Link>& slow) {
  CommunicatorOptions options;
  options.order_stable = stable;
  options.chooser = always({algorithm, 2});
  std::vector<float> result;
  expect_no_errors(run_ranks(ranks, options, [&](Communicator& comm) {
    if (!slow.empty()) {
      EXPECT_TRUE(comm.avoid(slow));
      EXPECT_EQ(comm.epoch(), 1U);
    }
    std::vector<float> values(5000);
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = 1.0F / static_cast<float>(1 + i + 977 * static_cast<std::size_t>(comm.rank()));
    }
    comm.all_reduce(values.data(), values.data(), 5000, DType::f32, ReduceOp::sum);
    if (comm.rank() == 1) result = values;
  }));
  return result;
}

TEST(Detour, OrderStableSumsKeepTheirBits) {
  const std::vector<float> undisturbed = sums(8, true, Algorithm::ring, {});
  for (const Algorithm algorithm :
       {Algorithm::ring, Algorithm::double_ring, Algorithm::direct, Algorithm::recursive_doubling,
        Algorithm::halving_doubling, Algorithm::double_tree, Algorithm::one_shot}) {
    EXPECT_EQ(sums(8, true, algorithm, {{2, 5}}), undisturbed) << name_of(algorithm);
    EXPECT_EQ(sums(8, true, algorithm, {{2, 5}, {6, 1}}), undisturbed) << name_of(algorithm);
  }
}

TEST(Detour, RanksThatGoOtherWaysAreFound) {
  const auto errors = run_ranks(4, {}, [](Communicator& comm) {
    comm.avoid(comm.rank() == 2 ? std::vector<Link>{{0, 1}} : std::vector<Link>{});
    comm.barrier();
    if (comm.rank() == 2) comm.avoid({{0, 1}});
    std::vector<float> values(100);
    comm.all_reduce(values.data(), values.data(), 100, DType::f32, ReduceOp::sum);
  });
  EXPECT_NE(errors[0].find("disagree"), std::string::npos) << errors[0];
  EXPECT_NE(errors[0].find("epoch 2"), std::string::npos) << errors[0];
}

}  // namespace
}  // namespace belay::comm
