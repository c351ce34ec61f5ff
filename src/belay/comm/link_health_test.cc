// Slow links are found, confirmed, passed by and found again to be well; late ranks are not slow
// links.

#include "belay/comm/link_health.h"

#include <gtest/gtest.h>

#include <chrono>
#include <mutex>

#include "belay/comm/thread_ranks.h"
#include "belay/comm/ticks.h"

namespace belay::comm {
namespace {

using Kind = LinkNews::Kind;

// All links carry `bytes` in 1 ms, and every rank is outside of calls for 30% of a step of 10 ms.
LinkTable even_table(int ranks, double bytes = 1e6) {
  LinkTable table(ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    const std::span<double> row = table.row(rank);
    for (int peer = 0; peer < ranks; ++peer) {
      if (peer == rank) continue;
      row[static_cast<std::size_t>(peer)] = bytes;
      row[static_cast<std::size_t>(ranks + peer)] = 1e6;
    }
    row[static_cast<std::size_t>(2 * ranks)] = 3e6;
    row[static_cast<std::size_t>(2 * ranks + 1)] = 1e7;
  }
  table.sort();
  return table;
}

TEST(LinkTable, OnlyWhatIsSlowAndMattersIsSuspected) {
  LinkTable table = even_table(5);
  const auto expect = [&](const std::vector<Link>& links) {
    table.sort();
    EXPECT_EQ(suspected_links(table, 2), links);
  };
  expect({});
  table.row(3)[5 + 1] = 1.9e6;  // not slow enough
  expect({});
  table.row(3)[5 + 1] = 2.5e6;
  expect({{1, 3}});
  table.row(0)[5 + 4] = 9e6;
  expect({{4, 0}, {1, 3}});
  // A late rank is not a slow link.
  table.row(4)[10] = 9e6;
  expect({{1, 3}});
  EXPECT_EQ(late_ranks(table, 2), std::vector<int>{4});
  // Too little to tell, and too little to matter.
  table.row(3)[1] = 1000;
  expect({});
  table = even_table(5);
  table.row(2)[5 + 0] = 2.5e6;
  table.row(2)[11] = 1e9;
  expect({});
}

// Slow as links between hosts are, beside those within them.
TEST(LinkTable, LinksAreComparedWithThoseOfTheirKind) {
  LinkTable table(6, {0, 0, 0, 1, 1, 1});
  LinkTable alike(6);
  for (LinkTable* const one : {&table, &alike}) {
    for (int rank = 0; rank < 6; ++rank) {
      for (int peer = 0; peer < 6; ++peer) {
        const bool next = peer == (rank + 5) % 6;  // a ring
        one->row(rank)[static_cast<std::size_t>(peer)] = next ? 1e6 : 0;
        one->row(rank)[static_cast<std::size_t>(6 + peer)] = next ? 1e6 : 0;
      }
      one->row(rank)[12] = 3e6;
      one->row(rank)[13] = 1e7;
    }
    one->row(3)[6 + 2] = 9e6;
    one->row(0)[6 + 5] = 9e6;
    one->sort();
  }
  EXPECT_EQ(suspected_links(table, 2), std::vector<Link>{});
  EXPECT_EQ(*typical_link(table, {2, 3}), (Link{5, 0}));
  EXPECT_EQ(suspected_links(alike, 2).size(), 2U);
}

TEST(LinkTable, TheTypicalLinkStaysAway) {
  const LinkTable table = even_table(5);
  const auto typical = typical_link(table, {1, 3});
  ASSERT_TRUE(typical);
  for (const int rank : {typical->from, typical->to}) {
    EXPECT_NE(rank, 1);
    EXPECT_NE(rank, 3);
  }
  EXPECT_EQ(*typical_link(even_table(2), {0, 1}), (Link{1, 0}));
  EXPECT_FALSE(typical_link(even_table(2, 10), {0, 1}));
}

// Whatever the processor's time stamp counts.
TEST(LinkHealth, ATableIsInNanoseconds) {
  expect_no_errors(run_ranks(2, {}, [](Communicator& comm) {
    LinkHealth health(comm, {});
    const std::uint64_t before = clock_ns(CLOCK_MONOTONIC);
    health.begin_step();
    const std::uint64_t begin = clock_ns(CLOCK_MONOTONIC);
    comm.barrier();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const std::uint64_t end = clock_ns(CLOCK_MONOTONIC);
    health.after_step();
    const std::uint64_t after = clock_ns(CLOCK_MONOTONIC);
    EXPECT_GE(health.table().whole_ns(comm.rank()), static_cast<double>(end - begin));
    EXPECT_LE(health.table().whole_ns(comm.rank()), static_cast<double>(after - before));
    EXPECT_GT(health.table().outside(comm.rank()), 0);
    EXPECT_LE(health.table().outside(comm.rank()), 1);
  }));
}

TEST(LinkHealth, ATypicalLinkHealsAndASlowOneDoesNot) {
  for (const double factor : {1.2, 1.3, 1.4, 2.0, 4.0, 1000.0}) {
    EXPECT_GT(healed_below(factor), 1.05);
    EXPECT_LT(healed_below(factor), factor);
  }
  EXPECT_EQ(healed_below(2), 1.5);
}

struct Story {
  std::vector<std::pair<int, LinkNews>> news;  // by step, as rank 1 saw it
  std::vector<double> step_s;
  std::vector<float> values;
};

// Steps of some computing and an all-reduce of 60,000 floats.
Story tell(int ranks, int steps, const CommunicatorOptions& options, const LinkHealthOptions& how,
           const std::string& inject, int late_rank = -1) {
  Story story;
  expect_no_errors(run_ranks(
      ranks, options,
      [&](Communicator& comm) {
        LinkHealth health(comm, how);
        std::vector<float> values(60'000);
        for (std::size_t i = 0; i < values.size(); ++i) {
          values[i] = 1.0F / static_cast<float>(i + 10 + static_cast<std::size_t>(comm.rank()));
        }
        for (int step = 1; step <= steps; ++step) {
          const auto begin = std::chrono::steady_clock::now();
          health.begin_step();
          std::this_thread::sleep_for(std::chrono::milliseconds(comm.rank() == late_rank ? 40 : 1));
          comm.all_reduce(values.data(), values.data(), 60'000, DType::f32, ReduceOp::avg);
          const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
          const auto news = health.after_step();
          if (comm.rank() != 1) continue;
          story.step_s.push_back(passed.count());
          for (const LinkNews& one : news) story.news.emplace_back(step, one);
        }
        if (comm.rank() == 1) story.values = values;
      },
      inject));
  return story;
}

CommunicatorOptions with(Algorithm algorithm, bool stable = false) {
  CommunicatorOptions options;
  options.chooser = always({algorithm});
  options.order_stable = stable;
  return options;
}

// 240 kB over links of 20 MB/s take a ring of 4 some 18 ms; the slow link, 120 ms.
constexpr const char* kSlow = "all bandwidth=2e7; link 2->3 bandwidth=2e6";

TEST(LinkHealth, ASlowLinkIsNamedWithinFiveStepsAndPassedBy) {
  for (const Algorithm algorithm : {Algorithm::ring, Algorithm::direct}) {
    const Story story = tell(4, 6, with(algorithm), {}, kSlow);
    ASSERT_EQ(story.news.size(), 1U) << name_of(algorithm);
    const auto& [step, news] = story.news[0];
    EXPECT_LE(step, 5);
    EXPECT_EQ(news.kind, Kind::slow);
    EXPECT_EQ(news.link, (Link{2, 3}));
    EXPECT_TRUE(news.avoided);
    EXPECT_EQ(news.epoch, 1U);
    EXPECT_LT(news.gbps * 5, news.typical);
  }
}

TEST(LinkHealth, WithoutReformingItIsNamedOnly) {
  const Story story = tell(4, 4, with(Algorithm::ring), {.reform = false}, kSlow);
  ASSERT_EQ(story.news.size(), 1U);
  EXPECT_EQ(story.news[0].second.link, (Link{2, 3}));
  EXPECT_FALSE(story.news[0].second.avoided);
  EXPECT_EQ(story.news[0].second.epoch, 0U);
}

TEST(LinkHealth, ALinkThatHealsIsUsedAgain) {
  const Story story = tell(4, 30, with(Algorithm::ring), {},
                           "all bandwidth=2e7; link 2->3 bandwidth=2e6; "
                           "link 2->3 bandwidth=2e7 from=30");
  ASSERT_EQ(story.news.size(), 2U);
  EXPECT_EQ(story.news[0].second.kind, Kind::slow);
  EXPECT_EQ(story.news[1].second.kind, Kind::healed);
  EXPECT_EQ(story.news[1].second.link, (Link{2, 3}));
  EXPECT_TRUE(story.news[1].second.avoided);
  EXPECT_EQ(story.news[1].second.epoch, 2U);
}

// There is no way around it, so nothing changes, neither when it is slow nor when it is well.
TEST(LinkHealth, TheLinkOfTwoRanksIsNamedAndStays) {
  const Story story = tell(2, 30, with(Algorithm::ring), {},
                           "all bandwidth=2e7; link 0->1 bandwidth=2e6; "
                           "link 0->1 bandwidth=2e7 from=30");
  ASSERT_EQ(story.news.size(), 2U);
  EXPECT_EQ(story.news[0].second.kind, Kind::slow);
  EXPECT_EQ(story.news[1].second.kind, Kind::healed);
  for (const auto& [step, news] : story.news) {
    EXPECT_FALSE(news.avoided);
    EXPECT_EQ(news.epoch, 0U);
  }
}

TEST(LinkHealth, ALateRankIsNotASlowLink) {
  const Story story = tell(4, 5, with(Algorithm::ring), {}, "all bandwidth=2e7", 2);
  ASSERT_EQ(story.news.size(), 1U);
  EXPECT_EQ(story.news[0].second.kind, Kind::late);
  EXPECT_EQ(story.news[0].second.link.from, 2);
  EXPECT_GT(story.news[0].second.share, 2 * story.news[0].second.others);
}

TEST(LinkHealth, ARankThatEntersItsCallsLateIsLate) {
  const Story story = tell(4, 5, with(Algorithm::ring), {}, "all bandwidth=2e7; rank 3 late=30ms");
  ASSERT_EQ(story.news.size(), 1U);
  EXPECT_EQ(story.news[0].second.kind, Kind::late);
  EXPECT_EQ(story.news[0].second.link.from, 3);
}

TEST(LinkHealth, AnUndisturbedGroupHasNoNews) {
  EXPECT_TRUE(tell(3, 10, with(Algorithm::ring), {}, "all bandwidth=2e7").news.empty());
}

TEST(LinkHealth, OrderStableValuesAreThoseOfAnUndisturbedRun) {
  const Story undisturbed = tell(4, 8, with(Algorithm::direct, true), {}, "");
  for (const Algorithm algorithm :
       {Algorithm::ring, Algorithm::direct, Algorithm::halving_doubling}) {
    const Story story = tell(4, 8, with(algorithm, true), {}, kSlow);
    EXPECT_FALSE(story.news.empty()) << name_of(algorithm);
    EXPECT_EQ(story.values, undisturbed.values) << name_of(algorithm);
  }
}

}  // namespace
}  // namespace belay::comm
