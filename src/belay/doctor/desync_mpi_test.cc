// Records of ranks that are processes: killed, crashed, stopped, in disagreement, gone.

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>

#include "belay/base/error.h"
#include "belay/comm/communicator.h"
#include "belay/comm/fault_transport.h"
#include "belay/comm/flight_signals.h"
#include "belay/comm/mpi_ranks.h"
#include "belay/comm/world.h"
#include "belay/doctor/desync_report.h"

namespace belay {
namespace {

namespace fs = std::filesystem;

void sum(comm::Communicator& comm, std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count), 1.0F);
  comm.all_reduce(values.data(), values.data(), count, DType::f32, comm::ReduceOp::sum);
}

// A rank of a scenario under mpirun, the only rank without it.
TEST(DesyncRank, PlaysItsPart) {
  const char* const scenario = std::getenv("BELAY_TEST_SCENARIO");
  const char* const inject = std::getenv("BELAY_TEST_INJECT");
  const char* const directory = std::getenv("BELAY_TEST_FLIGHT");
  const auto world = comm::World::join();
  comm::write_flight_records_at_signals();
  const auto faults = comm::inject_faults(world->transport(), inject == nullptr ? "" : inject,
                                          comm::RankIs::process);
  comm::CommunicatorOptions options;
  options.timeout_s = 1;
  comm::Communicator comm(faults != nullptr ? *faults : world->transport(), options);
  if (directory != nullptr) comm.flight().keep_in(directory);
  const bool last = comm.rank() == comm.size() - 1;
  const std::string what = scenario == nullptr ? "" : scenario;
  comm::noting_failure(comm.flight(), [&] {
    for (int call = 0; call < 10; ++call) sum(comm, 100);
    if (last && what == "mismatch") sum(comm, 11);
    if (last && what == "crashes") std::raise(SIGSEGV);
    if (last && what == "leaves") return;
    if (last && what == "throws") fail(ExitCode::data, "shard 7 is torn");
    for (int call = 0; call < 10; ++call) sum(comm, 100);
  });
}

// Seconds from mpirun's SIGTERM to its SIGKILL: a busy machine may need more than the usual one to
// let a rank write its record.
constexpr const char* kSigkillTimeout = "OMPI_MCA_odls_base_sigkill_timeout";

class DesyncMpiTest : public ::testing::Test {
 protected:
  DesyncMpiTest() { fs::remove_all(dir_); }
  ~DesyncMpiTest() override { fs::remove_all(dir_); }

  // What the doctor says about the last of three ranks.
  void expect(const std::string& scenario, const std::string& inject, Culprit kind,
              std::int64_t sequence) const {
    const comm::MpiOutcome outcome = comm::run_under_mpi(3, "DesyncRank.PlaysItsPart",
                                                         {{"BELAY_TEST_SCENARIO", scenario},
                                                          {"BELAY_TEST_INJECT", inject},
                                                          {"BELAY_TEST_FLIGHT", dir_},
                                                          {kSigkillTimeout, "3"}});
    EXPECT_NE(outcome.code, 0) << outcome.output;
    const DesyncReport report = desync_report(read_flight_records(dir_));
    const std::string text = report_text(report) + outcome.output;
    ASSERT_EQ(report.culprits.size(), 1U) << text;
    EXPECT_EQ(report.culprits[0].rank, 2) << text;
    EXPECT_EQ(name_of(report.culprits[0].kind), name_of(kind)) << text;
    if (sequence > 0) {
      EXPECT_EQ(report.sequence, sequence) << text;
    }
    fs::remove_all(dir_);
  }

  std::string dir_ = ::testing::TempDir() + "belay-desync-mpi-" + std::to_string(::getpid());
};

TEST_F(DesyncMpiTest, AKilledRankLeavesNoRecord) {
  expect("", "rank 2 kill@call=7", Culprit::no_record, 7);
}

TEST_F(DesyncMpiTest, ACrashedRankSaysSo) {
  expect("crashes", "", Culprit::crashed, 0);
}

TEST_F(DesyncMpiTest, AMismatchIsFound) {
  expect("mismatch", "", Culprit::another_call, 11);
}

TEST_F(DesyncMpiTest, ARankThatLeavesIsFound) {
  expect("leaves", "", Culprit::left_early, 11);
}

TEST_F(DesyncMpiTest, ARankWithBadDataIsFound) {
  expect("throws", "", Culprit::own_error, 11);
}

// mpirun wakes it up before it ends it, so that it can tell.
TEST_F(DesyncMpiTest, AStoppedRankDidNotRun) {
  expect("", "rank 2 stop@call=7", Culprit::slept, 7);
}

}  // namespace
}  // namespace belay
