// Ranks that do not do what the others do: every rank says who, and in which call.

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "belay/comm/shared_transport.h"
#include "belay/comm/thread_ranks.h"
#include "belay/comm/watch.h"

namespace belay::comm {
namespace {

using Seconds = std::chrono::duration<double>;

void sum(Communicator& comm, std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count), 1.0F);
  comm.all_reduce(values.data(), values.data(), count, DType::f32, ReduceOp::sum);
}

void expect_all_name(const std::vector<std::string>& errors,
                     const std::vector<std::string>& parts) {
  for (const std::string& error : errors) {
    EXPECT_EQ(error, errors[0]);
    for (const std::string& part : parts) {
      EXPECT_NE(error.find(part), std::string::npos) << "'" << part << "' in: " << error;
    }
  }
}

TEST(Trouble, AnotherCall) {
  for (const int p : {2, 5}) {
    const auto begin = std::chrono::steady_clock::now();
    const auto errors = run_ranks(p, {}, [](Communicator& comm) {
      sum(comm, 10);
      if (comm.rank() == 1) {
        std::vector<float> values(20);
        comm.broadcast(values.data(), values.data(), 20, DType::f32, 0);
      } else {
        sum(comm, 20);
      }
    });
    expect_all_name(errors, {"disagree", "rank 1 called broadcast #2 (20 f32, root 0",
                             "all_reduce #2 (sum of 20 f32"});
    // Long before the time-out.
    EXPECT_LT(Seconds(std::chrono::steady_clock::now() - begin).count(), 5.0);
  }
}

TEST(Trouble, AnotherCountTypeOperationOrRoot) {
  const std::vector<std::function<void(Communicator&)>> others = {
      [](Communicator& comm) { sum(comm, 11); },
      [](Communicator& comm) {
        std::vector<float> values(10);
        comm.all_reduce(values.data(), values.data(), 10, DType::i32, ReduceOp::sum);
      },
      [](Communicator& comm) {
        std::vector<float> values(10);
        comm.all_reduce(values.data(), values.data(), 10, DType::f32, ReduceOp::max);
      },
  };
  for (const auto& other : others) {
    const auto errors = run_ranks(3, {}, [&](Communicator& comm) {
      if (comm.rank() == 2) {
        other(comm);
      } else {
        sum(comm, 10);
      }
    });
    expect_all_name(errors, {"disagree", "rank 2", "#1"});
  }
  const auto errors = run_ranks(3, {}, [](Communicator& comm) {
    std::vector<float> values(10);
    comm.broadcast(values.data(), values.data(), 10, DType::f32, comm.rank() == 2 ? 1 : 0);
    // Whose part of the broadcast was over before that was seen learns it in the next call.
    comm.barrier();
  });
  expect_all_name(errors, {"disagree", "rank 2 called broadcast #1 (10 f32, root 1"});
}

TEST(Trouble, AnotherAlgorithm) {
  const auto errors = run_ranks(2, {}, [](Communicator& comm) {
    if (comm.rank() == 1) comm.set_chooser(always({Algorithm::ring}));
    sum(comm, 100);
  });
  expect_all_name(errors, {"disagree", "all_reduce #1"});
}

TEST(Trouble, ARankThatEndsEarly) {
  const auto errors = run_ranks(4, {}, [](Communicator& comm) {
    sum(comm, 100);
    if (comm.rank() == 2) return;
    sum(comm, 100);
  });
  EXPECT_EQ(errors[2], "");
  const std::vector<std::string> others{errors[0], errors[1], errors[3]};
  expect_all_name(others, {"all_reduce #2 (sum of 100 f32", "rank 2 has ended after 1 calls"});
}

// What is said once need not be said by all.
TEST(Trouble, AnErrorOfOneRankHasOneExitCodeOnAll) {
  std::vector<ExitCode> codes(4, ExitCode::ok);
  std::vector<std::string> messages(4);
  expect_no_errors(run_ranks(4, {}, [&](Communicator& comm) {
    const auto rank = static_cast<std::size_t>(comm.rank());
    try {
      sum(comm, 100);
      if (rank == 2) {
        const Error error(ExitCode::data, "the data are gone");
        comm.abort(error);
        throw error;
      }
      sum(comm, 100);
    } catch (const Error& error) {
      comm.abort(error);  // changes nothing: this one is known
      codes[rank] = error.code();
      messages[rank] = error.what();
    }
  }));
  EXPECT_EQ(codes, std::vector<ExitCode>(4, ExitCode::data));
  EXPECT_EQ(messages, (std::vector<std::string>{"", "", "the data are gone", ""}));
}

TEST(Trouble, ARankThatDoesNotCome) {
  CommunicatorOptions options;
  options.timeout_s = 0.2;
  const auto begin = std::chrono::steady_clock::now();
  const auto errors = run_ranks(4, options, [](Communicator& comm) {
    sum(comm, 100);
    if (comm.rank() == 3) {
      // Until the others have given up; then it learns why.
      std::this_thread::sleep_for(std::chrono::milliseconds(600));
    }
    sum(comm, 100);
  });
  expect_all_name(errors, {"all_reduce #2", "rank 3 has not called it", "has finished call #1",
                           "no progress for 0.2 s"});
  EXPECT_LT(Seconds(std::chrono::steady_clock::now() - begin).count(), 3.0);
}

TEST(Trouble, ARankThatStopsInTheMiddle) {
  ThreadGroup group(3);
  std::vector<std::string> errors(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      CommunicatorOptions options;
      options.timeout_s = 0.2;
      Communicator comm(group.transport(rank), options);
      try {
        sum(comm, 100);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::communication);
        errors[static_cast<std::size_t>(rank)] = error.what();
      }
    });
  }
  // Rank 2 enters the call, and is never heard of again.
  const Choice choice = choose_by_size(Collective::all_reduce, 3, 400);
  Signature call{1, 100, -1, Collective::all_reduce, ReduceOp::sum, DType::f32};
  put_choice(call, choice);
  group.transport(2).enter(call);
  for (std::thread& thread : threads) thread.join();
  expect_all_name(errors, {"all_reduce #1", "rank 2 has stopped in the middle of it"});
}

// A transport in which a rank was killed while it wrote why the group has failed: no reason of
// another rank is ever taken, and none is there.
class ReasonHalfWritten final : public SharedTransport {
 public:
  explicit ReasonHalfWritten(void* memory) : SharedTransport(SharedChannels(memory, 1), 0) {}
  [[nodiscard]] bool readable(const void*, std::size_t) const override { return false; }
  void* allocate(std::size_t) override { return nullptr; }
  void deallocate(void*) override {}
  bool raise(std::string_view, ExitCode) override { return false; }
  [[nodiscard]] bool raised() override { return false; }

 private:
  [[nodiscard]] std::uint64_t shared_address(const void*) const override { return 0; }
  [[nodiscard]] const void* local_pointer(int, std::uint64_t) const override { return nullptr; }
};

TEST(Trouble, ARankWhoseReasonIsNotTakenFailsByIt) {
  const std::size_t bytes = SharedChannels::bytes_for(1);
  void* const memory = std::aligned_alloc(kLine, (bytes + kLine - 1) / kLine * kLine);
  std::memset(memory, 0, bytes);
  ReasonHalfWritten transport(memory);
  Watch watch(transport, 1);
  Signature call;
  call.sequence = 1;
  watch.begin(call);
  try {
    watch.give_up("rank 1 has gone");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::communication);
    EXPECT_STREQ(error.what(), "barrier #1, seen by rank 0: rank 1 has gone");
  }
  std::free(memory);
}

TEST(Trouble, FrozenSettingsStay) {
  ThreadGroup group(1);
  Communicator comm(group.transport(0), {});
  comm.freeze("comm.bucket_mb", "25");
  comm.freeze("comm.buckets", "4");
  comm.freeze("comm.bucket_mb", "25");
  try {
    comm.freeze("comm.bucket_mb", "10");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_EQ(std::string(error.what()).find("comm.bucket_mb is frozen at 25"), 0U);
    EXPECT_NE(std::string(error.what()).find("10 takes effect in a new run"), std::string::npos);
  }
}

TEST(Trouble, AGroupThatHasFailedStaysFailed) {
  const auto errors = run_ranks(2, {}, [](Communicator& comm) {
    try {
      sum(comm, comm.rank() == 0 ? 5 : 6);
    } catch (const Error&) {
    }
    sum(comm, 7);
  });
  expect_all_name(errors, {"disagree"});
}

}  // namespace
}  // namespace belay::comm
