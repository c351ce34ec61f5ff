// Runs that lose a rank end on all, and go on from the newest snapshot as if nothing had happened.

#include <cstdio>
#include <cstdlib>

#include "belay/comm/fault_transport.h"
#include "belay/comm/mpi_ranks.h"
#include "belay/comm/world.h"
#include "belay/train/trainer_harness.h"

namespace belay {
namespace {

class FaultyRunTest : public testing::TrainerHarness {
 protected:
  // One rank of the run, as `belay train` starts it.
  void play_part(const std::string& run, const std::string& inject) const {
    const auto world = comm::World::join();
    comm::CommunicatorOptions how;
    how.timeout_s = 1;
    const auto faults = comm::inject_faults(world->transport(), inject, comm::RankIs::process);
    comm::Communicator communicator(faults != nullptr ? *faults : world->transport(), how);
    const RunConfig run_config = config(
        {"train.global_batch=8", "train.snapshot_every=2", "comm.timeout_s=1", "machine.threads=1"},
        world->size());
    TrainOptions options = to(run, 0, "auto");
    options.communicator = &communicator;
    try {
      static_cast<void>(train(run_config, options));
    } catch (const Error& error) {
      // Before the world is left: the first process that ends makes mpirun end the others.
      std::fprintf(stderr, "says: %s\n", error.what());
      throw;
    }
  }

  [[nodiscard]] comm::MpiOutcome run(const std::string& name, const std::string& inject) const {
    return comm::run_under_mpi(4, "FaultyRunTest.PlaysItsPart",
                               {{"BELAY_TEST_DIRECTORY", path("")},
                                {"BELAY_TEST_RUN", path(name)},
                                {"BELAY_TEST_INJECT", inject}});
  }

  void expect_unbroken_losses(const std::string& broken) const {
    const auto ours = steps(path(broken));
    const auto whole = steps(path("whole"));
    EXPECT_EQ(ours.size(), whole.size());
    for (const auto& [step, record] : whole) {
      ASSERT_TRUE(ours.contains(step)) << step;
      EXPECT_EQ(ours.at(step)["loss"], record["loss"]) << "step " << step;
    }
  }
};

TEST_F(FaultyRunTest, PlaysItsPart) {
  const char* const directory = std::getenv("BELAY_TEST_DIRECTORY");
  if (directory != nullptr) {
    TearDown();
    dir_ = directory;
  }
  const char* const name = std::getenv("BELAY_TEST_RUN");
  const char* const inject = std::getenv("BELAY_TEST_INJECT");
  try {
    play_part(name == nullptr ? path("alone") : name, inject == nullptr ? "" : inject);
  } catch (const Error& error) {
    std::_Exit(static_cast<int>(error.code()));
  }
  if (directory != nullptr) dir_ = path("of no rank");
}

TEST_F(FaultyRunTest, KilledAndStoppedRanks) {
  const comm::MpiOutcome whole = run("whole", "");
  ASSERT_EQ(whole.code, 0) << whole.output;

  const comm::MpiOutcome killed = run("killed", "rank 2 kill@call=40");
  EXPECT_NE(killed.code, 0) << killed.output;
  EXPECT_LT(killed.seconds, 10);
  EXPECT_GE(killed.count("process rank 2 "), 1) << killed.output;
  EXPECT_GE(killed.count("signal 9"), 1) << killed.output;

  const comm::MpiOutcome stopped = run("stopped", "rank 2 stop@call=40");
  EXPECT_EQ(stopped.code, 5) << stopped.output;
  EXPECT_LT(stopped.seconds, 10);
  EXPECT_GE(stopped.count("#40 ("), 1) << stopped.output;
  EXPECT_GE(stopped.count("rank 2 has not called it"), 3) << stopped.output;

  for (const auto& [name, outcome] : {std::pair{"killed", killed}, {"stopped", stopped}}) {
    EXPECT_TRUE(outcome.leftovers().empty());
    // It broke in the middle.
    const std::size_t before = steps(path(name)).size();
    EXPECT_GT(before, 2U);
    EXPECT_LT(before, steps(path("whole")).size());
    const comm::MpiOutcome resumed = run(name, "");
    ASSERT_EQ(resumed.code, 0) << resumed.output;
    expect_unbroken_losses(name);
  }
}

}  // namespace
}  // namespace belay
