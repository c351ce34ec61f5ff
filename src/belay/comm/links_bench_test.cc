// Links that are timed one by one.

#include "belay/comm/links_bench.h"

#include <gtest/gtest.h>

#include <thread>

#include "belay/comm/link_probe.h"
#include "belay/comm/thread_ranks.h"

namespace belay::comm {
namespace {

LinksReport bench(int ranks, const LinksBench& options) {
  ThreadGroup group(ranks);
  std::vector<LinksReport> reports(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  const std::vector<int> one_host(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      reports[static_cast<std::size_t>(rank)] =
          bench_links(group.transport(rank), one_host, options);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const LinksReport& report : reports) {
    EXPECT_EQ(report.gbps, reports[0].gbps);
    EXPECT_EQ(report.bad.size(), reports[0].bad.size());
  }
  return reports[0];
}

TEST(LinksBench, EveryLinkIsTimed) {
  for (const int ranks : {2, 3, 5}) {
    const LinksReport report = bench(ranks, {.bytes = 10'000, .repetitions = 2, .factor = 1e6});
    const auto p = static_cast<std::size_t>(ranks);
    ASSERT_EQ(report.gbps.size(), p * p);
    for (std::size_t link = 0; link < p * p; ++link) {
      const bool diagonal = link / p == link % p;
      for (const LinkMatrix* matrix : {&report.latency_us, &report.gbps, &report.gbps_together}) {
        if (diagonal) {
          EXPECT_EQ((*matrix)[link], 0);
        } else {
          EXPECT_GT((*matrix)[link], 0);
        }
      }
    }
    EXPECT_EQ(report.rings.size(), p - 1);
    EXPECT_TRUE(report.bad.empty());
    EXPECT_GT(report.record_ns, 0);
  }
}

TEST(LinksBench, OneRankHasNoLinks) {
  ThreadGroup group(1);
  EXPECT_THROW(static_cast<void>(bench_links(group.transport(0), {0}, {})), Error);
}

TEST(LinkProbe, PairsMayTakePartAtOnce) {
  expect_no_errors(run_ranks(4, {}, [](Communicator& comm) {
    LinkProbe probe(comm, 1 << 16);
    const std::vector<int> ring = {1, 2, 3, 0};
    const std::vector<int> swap = {1, 0, 3, 2};
    const std::vector<int> one = {-1, -1, -1, 1};
    for (const std::size_t bytes : {std::size_t{8}, std::size_t{300}, std::size_t{1} << 16}) {
      for (const std::vector<int>* to : {&ring, &swap}) {
        const ProbeTimes times = probe.run(*to, bytes, 5);
        EXPECT_GT(times.one_way_s, 0);
        EXPECT_GT(times.there_back_s, 0);
      }
      const ProbeTimes times = probe.run(one, bytes, 5);
      EXPECT_EQ(times.one_way_s > 0, comm.rank() == 1);
      EXPECT_EQ(times.there_back_s > 0, comm.rank() == 3);
    }
  }));
}

TEST(LinkProbe, ARankThatDoesNotComeIsNamed) {
  CommunicatorOptions options;
  options.timeout_s = 0.2;
  const auto errors = run_ranks(3, options, [](Communicator& comm) {
    LinkProbe probe(comm, 8);
    const std::vector<int> to = {1, -1, -1};
    if (comm.rank() == 1) return;
    static_cast<void>(probe.run(to, 8, 1));
    comm.barrier();
  });
  EXPECT_NE(errors[0].find("rank 1 has ended after 2 calls"), std::string::npos) << errors[0];
  // Rank 2 has no part in the test, and may be the one that sees it.
  EXPECT_EQ(errors[2], errors[0]);
  const bool in_test = errors[0].find("link test #3 (of 8 bytes)") != std::string::npos;
  EXPECT_TRUE(in_test || errors[0].find("barrier #4") != std::string::npos) << errors[0];
}

}  // namespace
}  // namespace belay::comm
