// Each fault over ranks that are threads.

#include "belay/comm/fault_transport.h"

#include <gtest/gtest.h>
#include <time.h>

#include <chrono>
#include <vector>

#include "belay/comm/thread_ranks.h"

namespace belay::comm {
namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double processor_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

void sum(Communicator& comm, std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count), 1.0F);
  comm.all_reduce(values.data(), values.data(), count, DType::f32, ReduceOp::sum);
  for (const float value : values) ASSERT_EQ(value, static_cast<float>(comm.size()));
}

CommunicatorOptions ring() {
  CommunicatorOptions options;
  options.chooser = always({Algorithm::ring});
  options.timeout_s = 5;
  return options;
}

TEST(FaultTransport, ALinkCarriesOneMessageAfterTheOther) {
  // A ring of 2 sends 2 x 40 kB in each direction: 0.2 s at 400 kB/s; the pieces of the segmented
  // ring share the link.
  for (const Choice& choice : {Choice{Algorithm::ring}, Choice{Algorithm::segmented_ring, 4}}) {
    CommunicatorOptions options = ring();
    options.chooser = always(choice);
    const auto begin = Clock::now();
    expect_no_errors(run_ranks(
        2, options,
        [](Communicator& comm) {
          const double before = processor_seconds();
          sum(comm, 20'000);
          // Who waits sleeps.
          EXPECT_LT(processor_seconds() - before, 0.1);
        },
        "link 0-1 bandwidth=400k"));
    EXPECT_GE(since(begin), 0.2);
  }
}

TEST(FaultTransport, LinksHeal) {
  std::vector<double> seconds;
  expect_no_errors(run_ranks(
      3, {},
      [&](Communicator& comm) {
        for (int call = 1; call <= 6; ++call) {
          const auto begin = Clock::now();
          sum(comm, 1000);
          comm.barrier();
          if (comm.rank() == 0) seconds.push_back(since(begin));
        }
      },
      // Each round has two calls: the third and fourth round.
      "link 1->2 delay=50ms from=5 to=8"));
  ASSERT_EQ(seconds.size(), 6U);
  // Rank 0 may come to a round when its messages have been under way for a while.
  EXPECT_GE(seconds[2] + seconds[3], 0.08);
  EXPECT_LT(std::min(seconds[4], seconds[5]), 0.05);
}

TEST(FaultTransport, LateRanks) {
  const auto begin = Clock::now();
  expect_no_errors(run_ranks(
      3, ring(), [](Communicator& comm) { sum(comm, 10); }, "rank 1 late=100ms"));
  EXPECT_GE(since(begin), 0.1);
}

TEST(FaultTransport, LostMessagesEndInTheTimeOut) {
  CommunicatorOptions options = ring();
  options.timeout_s = 0.3;
  const auto errors = run_ranks(
      2, options,
      [](Communicator& comm) {
        for (int call = 1; call <= 5; ++call) sum(comm, 10);
      },
      "link 0->1 drop@call=3");
  for (const std::string& error : errors) {
    EXPECT_EQ(error, errors[0]);
    EXPECT_NE(error.find("all_reduce #3"), std::string::npos) << error;
    EXPECT_NE(error.find("no progress for 0.3 s"), std::string::npos) << error;
  }
}

TEST(FaultTransport, AKilledRankEndsAll) {
  const auto errors = run_ranks(
      4, ring(),
      [](Communicator& comm) {
        for (int call = 1; call <= 5; ++call) sum(comm, 10);
      },
      "rank 2 kill@call=4");
  EXPECT_NE(errors[2].find("rank 2 is killed in call #4"), std::string::npos) << errors[2];
  for (const int rank : {0, 1, 3}) {
    const std::string& error = errors[static_cast<std::size_t>(rank)];
    EXPECT_NE(error.find("all_reduce #4"), std::string::npos) << error;
    EXPECT_NE(error.find("rank 2 has ended after 3 calls"), std::string::npos) << error;
  }
}

TEST(FaultTransport, AStoppedRankIsMissed) {
  CommunicatorOptions options = ring();
  options.timeout_s = 0.3;
  const auto errors = run_ranks(
      3, options,
      [](Communicator& comm) {
        for (int call = 1; call <= 5; ++call) sum(comm, 10);
      },
      "rank 1 stop@call=2");
  for (const std::string& error : errors) {
    EXPECT_NE(error.find("rank 1 has not called it; rank 1 has finished call #1"),
              std::string::npos)
        << error;
  }
}

}  // namespace
}  // namespace belay::comm
