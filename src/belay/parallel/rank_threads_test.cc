#include "belay/parallel/rank_threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <new>

#include "belay/base/error.h"
#include "belay/comm/communicator.h"

namespace belay {
namespace {

Error error_of(int ranks, const std::function<void(comm::Communicator&)>& body) {
  try {
    run_as_threads(ranks, [&](comm::Transport& transport) {
      comm::Communicator communicator(transport, {});
      body(communicator);
    });
  } catch (const Error& error) {
    return error;
  }
  return {ExitCode::ok, ""};
}

TEST(RankThreadsTest, EveryRankRuns) {
  std::atomic<int> sum = 0;
  EXPECT_EQ(error_of(3, [&](comm::Communicator& comm) { sum += 1 + comm.rank(); }).code(),
            ExitCode::ok);
  EXPECT_EQ(sum, 6);
}

// The other ranks, those before it and those behind, only see that it has ended.
TEST(RankThreadsTest, TheCauseIsSaidNotItsConsequences) {
  for (int bad = 0; bad < 3; ++bad) {
    const Error error = error_of(3, [&](comm::Communicator& comm) {
      comm.barrier();
      if (comm.rank() == bad) throw std::bad_alloc();
      comm.barrier();
    });
    EXPECT_EQ(error.code(), ExitCode::capacity) << bad << ": " << error.what();
  }
}

TEST(RankThreadsTest, WithoutACauseTheFirstConsequenceIsSaid) {
  const Error error = error_of(2, [](comm::Communicator& comm) {
    if (comm.rank() == 0) comm.barrier();
  });
  EXPECT_EQ(error.code(), ExitCode::communication);
}

}  // namespace
}  // namespace belay
