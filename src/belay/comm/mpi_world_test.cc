// Ranks as processes. The tests start this program again under mpirun, where MpiRank.PlaysItsPart
// is a rank of a scenario; without mpirun it is the only rank of one.

#include "belay/comm/world.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "belay/base/error.h"
#include "belay/comm/communicator.h"
#include "belay/comm/fault_transport.h"
#include "belay/comm/mpi_ranks.h"

namespace belay::comm {
namespace {

void sum(Communicator& comm, std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count), 1.0F);
  comm.all_reduce(values.data(), values.data(), count, DType::f32, ReduceOp::sum);
  const auto expected = static_cast<float>(comm.size());
  for (const float value : values) ASSERT_EQ(value, expected);
}

// Every algorithm over shared and over private memory, in place and not.
void all_algorithms(Communicator& comm) {
  constexpr std::int64_t kMost = 100'003;
  auto* const shared = static_cast<float*>(comm.allocate(2 * kMost * sizeof(float)));
  std::vector<float> ordinary(2 * kMost);
  for (const Algorithm algorithm : algorithms_of(Collective::all_reduce)) {
    comm.set_chooser([algorithm](Collective collective, int ranks, std::size_t bytes) {
      if (collective != Collective::all_reduce) return choose_by_size(collective, ranks, bytes);
      return Choice{algorithm, 3};
    });
    for (float* const memory : {shared, ordinary.data()}) {
      for (const std::int64_t count : {std::int64_t{1}, std::int64_t{1000}, kMost}) {
        for (const bool in_place : {false, true}) {
          float* const output = in_place ? memory : memory + kMost;
          for (std::int64_t i = 0; i < count; ++i) {
            memory[i] = static_cast<float>((comm.rank() + i) % 4);
          }
          comm.all_reduce(memory, output, count, DType::f32, ReduceOp::sum);
          for (std::int64_t i = 0; i < count; ++i) {
            float expected = 0;
            for (int rank = 0; rank < comm.size(); ++rank) {
              expected += static_cast<float>((rank + i) % 4);
            }
            ASSERT_EQ(output[i], expected) << name_of(algorithm) << " at " << i << " of " << count;
          }
        }
      }
    }
  }
  comm.deallocate(shared);
}

void other_collectives(Communicator& comm) {
  const std::int64_t ranks = comm.size();
  constexpr std::int64_t kBlock = 3001;
  const auto all = static_cast<std::size_t>(kBlock * ranks);
  std::vector<std::int32_t> mine(all);
  std::vector<std::int32_t> theirs(all);
  for (std::size_t i = 0; i < all; ++i) mine[i] = comm.rank() * 1'000'000 + static_cast<int>(i);
  comm.all_to_all(mine.data(), theirs.data(), kBlock, DType::i32);
  for (std::int64_t i = 0; i < kBlock * ranks; ++i) {
    ASSERT_EQ(theirs[static_cast<std::size_t>(i)],
              i / kBlock * 1'000'000 + comm.rank() * kBlock + i % kBlock);
  }
  const int root = comm.size() - 1;
  comm.broadcast(mine.data(), theirs.data(), kBlock, DType::i32, root);
  for (std::size_t i = 0; i < kBlock; ++i) {
    ASSERT_EQ(theirs[i], root * 1'000'000 + static_cast<int>(i));
  }
  std::vector<float> values(all, 1.0F);
  comm.reduce(values.data(), values.data(), kBlock, DType::f32, ReduceOp::sum, root);
  if (comm.rank() == root) {
    ASSERT_EQ(values[7], static_cast<float>(ranks));
  }
  std::vector<float> block(all);
  values.assign(all, 2.0F);
  const auto count = static_cast<std::int64_t>(all);
  comm.reduce_scatter(values.data(), block.data(), count, DType::f32, ReduceOp::avg);
  comm.all_gather(block.data(), values.data(), count, DType::f32);
  for (const float value : values) ASSERT_EQ(value, 2.0F);
  comm.barrier();
}

// Pages of the memory that take room now, in memory or in /dev/shm.
std::size_t resident_pages(const void* memory, std::size_t bytes) {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  const std::uintptr_t begin = (address + page - 1) / page * page;
  const std::uintptr_t end = (address + bytes) / page * page;
  std::vector<unsigned char> there((end - begin) / page);
  EXPECT_EQ(::mincore(reinterpret_cast<void*>(begin), end - begin, there.data()), 0);
  return static_cast<std::size_t>(
      std::count_if(there.begin(), there.end(), [](unsigned char in) { return (in & 1) != 0; }));
}

void memory_is_zero_and_given_back(Communicator& comm) {
  constexpr std::size_t kBytes = std::size_t{8} << 20;
  for (const std::size_t bytes : {std::size_t{200}, std::size_t{5000}, kBytes}) {
    // What MPI may hand out next, used.
    std::vector<void*> used(64);
    for (void*& memory : used) memory = std::memset(std::malloc(bytes + 64), 0xAB, bytes + 64);
    for (void* const memory : used) std::free(memory);
    for (const bool again : {false, true}) {
      auto* const memory = static_cast<std::byte*>(comm.allocate(bytes));
      const auto not_zero = std::count_if(memory, memory + bytes,
                                          [](std::byte byte) { return byte != std::byte{0}; });
      EXPECT_EQ(not_zero, 0) << bytes << (again ? " again" : "");
      std::memset(memory, 0xCD, bytes);
      if (bytes == kBytes) {
        EXPECT_GT(resident_pages(memory, bytes), 0U);
      }
      comm.barrier();
      comm.deallocate(memory);
      if (bytes == kBytes) {
        EXPECT_EQ(resident_pages(memory, bytes), 0U);
      }
    }
  }
}

void play(const std::string& scenario, World& world) {
  CommunicatorOptions options;
  options.timeout_s = 1;
  options.layout.domain_of = world.host_of();
  const char* const inject = std::getenv("BELAY_TEST_INJECT");
  const auto faults =
      inject_faults(world.transport(), inject == nullptr ? "" : inject, RankIs::process);
  Communicator comm(faults != nullptr ? *faults : world.transport(), options);
  const bool last = comm.rank() == comm.size() - 1;
  if (scenario == "sums") {
    all_algorithms(comm);
    other_collectives(comm);
    return;
  }
  if (scenario == "memory") {
    memory_is_zero_and_given_back(comm);
    // MPI counts by int; nothing is read.
    EXPECT_FALSE(world.mpi_all_reduce(nullptr, nullptr, std::int64_t{1} << 32));
    return;
  }
  constexpr std::array<std::string_view, 4> kOthers = {"mismatch", "leaves", "throws", "many"};
  ASSERT_NE(std::find(kOthers.begin(), kOthers.end(), scenario), kOthers.end()) << scenario;
  sum(comm, 100);
  if (scenario == "mismatch") sum(comm, last ? 200 : 300);
  if (scenario == "leaves" && last) return;
  if (scenario == "throws" && last) {
    const Error error(ExitCode::data, "this rank has bad data");
    comm.abort(error);
    throw error;
  }
  if (scenario == "many") {
    for (int call = 0; call < 100; ++call) sum(comm, 1000);
  }
  sum(comm, 400);
}

TEST(MpiRank, PlaysItsPart) {
  const char* const scenario = std::getenv("BELAY_TEST_SCENARIO");
  try {
    const char* const messages = std::getenv("BELAY_TEST_MESSAGES");
    const auto world = World::join({.shared_memory = messages == nullptr});
    try {
      play(scenario == nullptr ? "sums" : scenario, *world);
    } catch (const Error& error) {
      // Before the world is left: the first process that ends makes mpirun end the others.
      std::fprintf(stderr, "says: %s\n", error.what());
      throw;
    }
  } catch (const Error& error) {
    std::_Exit(static_cast<int>(error.code()));
  }
}

MpiOutcome run(int ranks, const std::string& scenario, bool messages = false,
               const std::string& inject = {}) {
  return run_under_mpi(ranks, "MpiRank.PlaysItsPart",
                       {{"BELAY_TEST_SCENARIO", scenario},
                        {"BELAY_TEST_INJECT", inject},
                        {messages ? "BELAY_TEST_MESSAGES" : "BELAY_TEST_SHARED", "1"}});
}

TEST(MpiWorld, SumsAreExactOverSharedMemory) {
  for (const int ranks : {2, 3}) {
    const MpiOutcome outcome = run(ranks, "sums");
    EXPECT_EQ(outcome.code, 0) << outcome.output;
    EXPECT_EQ(outcome.count("[  PASSED  ] 1 test."), ranks) << outcome.output;
  }
}

TEST(MpiWorld, SumsAreExactOverMessages) {
  const MpiOutcome outcome = run(3, "sums", true);
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_EQ(outcome.count("[  PASSED  ] 1 test."), 3) << outcome.output;
}

TEST(MpiWorld, MemoryIsZeroAndGivenBack) {
  for (const int ranks : {1, 2}) {
    for (const bool messages : {false, true}) {
      const MpiOutcome outcome = run(ranks, "memory", messages);
      EXPECT_EQ(outcome.code, 0) << outcome.output;
      EXPECT_EQ(outcome.count("[  PASSED  ] 1 test."), ranks) << outcome.output;
    }
  }
}

TEST(MpiWorld, DisagreementEndsAllRanks) {
  for (const bool messages : {false, true}) {
    const MpiOutcome outcome = run(2, "mismatch", messages);
    EXPECT_EQ(outcome.code, 5) << outcome.output;
    EXPECT_EQ(outcome.count("says: all_reduce #2"), 2) << outcome.output;
    EXPECT_EQ(outcome.count("the ranks disagree"), 2) << outcome.output;
    EXPECT_GE(outcome.count("sum of 200 f32"), 2) << outcome.output;
    EXPECT_GE(outcome.count("sum of 300 f32"), 2) << outcome.output;
  }
}

TEST(MpiWorld, ARankThatLeavesIsNamed) {
  for (const bool messages : {false, true}) {
    const MpiOutcome outcome = run(3, "leaves", messages);
    EXPECT_EQ(outcome.code, 5) << outcome.output;
    EXPECT_EQ(outcome.count("rank 2 has ended after 1 calls"), 2) << outcome.output;
  }
}

TEST(MpiWorld, ARankThatFailsGivesAllItsExitCode) {
  for (const bool messages : {false, true}) {
    const MpiOutcome outcome = run(2, "throws", messages);
    EXPECT_EQ(outcome.count("says: this rank has bad data"), 1) << outcome.output;
    EXPECT_EQ(outcome.count("says: "), 2) << outcome.output;
    EXPECT_EQ(outcome.code, 3) << outcome.output;
  }
}

TEST(MpiWorld, ARankThatStopsIsNamedWithinTheTimeOut) {
  const MpiOutcome outcome = run(3, "many", false, "rank 2 stop@call=2");
  EXPECT_EQ(outcome.code, 5) << outcome.output;
  // The stopped rank too, if mpirun wakes it up before it ends it.
  EXPECT_GE(outcome.count("rank 2 has not called it; rank 2 has finished call #1"), 2)
      << outcome.output;
  EXPECT_LT(outcome.seconds, 20);
  EXPECT_TRUE(outcome.leftovers().empty());
}

TEST(MpiWorld, ARankThatIsKilledEndsAllAndIsNamed) {
  for (const bool messages : {false, true}) {
    const MpiOutcome outcome = run(4, "many", messages, "rank 2 kill@call=20");
    EXPECT_NE(outcome.code, 0) << outcome.output;
    EXPECT_GE(outcome.count("process rank 2 "), 1) << outcome.output;
    EXPECT_GE(outcome.count("signal 9"), 1) << outcome.output;
    EXPECT_LT(outcome.seconds, 10);
    EXPECT_TRUE(outcome.leftovers().empty());
  }
}

TEST(MpiWorld, SlowLinksAndLostMessages) {
  for (const bool messages : {false, true}) {
    // 4 kB at 100 kB/s in each of 100 calls would take 4 s; ten calls of them do.
    const MpiOutcome slow = run(2, "many", messages, "link 0-1 bandwidth=100k from=11 to=20");
    EXPECT_EQ(slow.code, 0) << slow.output;
    EXPECT_GE(slow.seconds, 0.4);
    const MpiOutcome lost = run(2, "many", messages, "link 0->1 drop@call=30");
    EXPECT_EQ(lost.code, 5) << lost.output;
    // Rank 0 may be done with it, and miss rank 1 in the next call.
    EXPECT_EQ(lost.count("says: all_reduce #30") + lost.count("says: all_reduce #31"), 2)
        << lost.output;
    EXPECT_EQ(lost.count("no progress for 1 s"), 2) << lost.output;
  }
}

}  // namespace
}  // namespace belay::comm
