// What ranks write down of their calls, and when it becomes a file.

#include "belay/comm/flight_recorder.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "belay/base/file.h"
#include "belay/comm/flight_signals.h"
#include "belay/comm/thread_ranks.h"

namespace belay::comm {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

class FlightRecorderTest : public ::testing::Test {
 protected:
  FlightRecorderTest() { fs::remove_all(dir_); }
  ~FlightRecorderTest() override { fs::remove_all(dir_); }

  [[nodiscard]] std::string path(int rank) const {
    return dir_ + "/rank-" + std::to_string(rank) + ".json";
  }
  [[nodiscard]] Json record(int rank) const { return Json::parse(read_file(path(rank))); }

  std::string dir_ = ::testing::TempDir() + "belay-flight-" + std::to_string(::getpid());
};

void sum(Communicator& comm, std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count), 1.0F);
  comm.all_reduce(values.data(), values.data(), count, DType::f32, ReduceOp::sum);
}

TEST_F(FlightRecorderTest, AGroupThatFailsLeavesARecordPerRank) {
  const auto errors = run_ranks(3, {}, [&](Communicator& comm) {
    comm.flight().keep_in(dir_);
    sum(comm, 10);
    if (comm.rank() == 1) {
      std::vector<double> values(5);
      comm.broadcast(values.data(), values.data(), 5, DType::f64, 2);
    } else {
      sum(comm, 20);
    }
  });
  EXPECT_NE(errors[0], "");
  for (int rank = 0; rank < 3; ++rank) {
    const Json json = record(rank);
    EXPECT_EQ(json["belay_flight"], 1);
    EXPECT_EQ(json["rank"], rank);
    EXPECT_EQ(json["ranks"], 3);
    EXPECT_EQ(json["end"], "communication");
    EXPECT_EQ(json["code"], 5);
    EXPECT_EQ(json["text"], errors[static_cast<std::size_t>(rank)]);
    EXPECT_EQ(json["peers"].size(), 2U);
    ASSERT_EQ(json["calls"].size(), 2U);
    const Json& first = json["calls"][0];
    EXPECT_EQ(first["sequence"], 1);
    EXPECT_EQ(first["collective"], "all_reduce");
    EXPECT_EQ(first["op"], "sum");
    EXPECT_EQ(first["dtype"], "f32");
    EXPECT_EQ(first["count"], 10);
    EXPECT_EQ(first["algorithm"], "one_shot");
    EXPECT_EQ(first["state"], "done");
    EXPECT_LE(first["queued_us"], first["started_us"]);
    EXPECT_LE(first["started_us"], first["done_us"]);
    EXPECT_LE(first["done_us"], json["written_us"]);
    EXPECT_EQ(json["calls"][1]["state"], "started");
  }
  const Json other = record(1)["calls"][1];
  EXPECT_EQ(other["collective"], "broadcast");
  EXPECT_EQ(other["dtype"], "f64");
  EXPECT_EQ(other["root"], 2);
  EXPECT_EQ(other["done_us"], 0);
  // Nothing but the records is left.
  EXPECT_EQ(std::distance(fs::directory_iterator(dir_), fs::directory_iterator()), 3);
}

TEST_F(FlightRecorderTest, OnlyTheLastCallsAreKept) {
  constexpr auto kCalls = static_cast<std::int64_t>(FlightRecorder::kEntries) + 44;
  static_cast<void>(run_ranks(2, {}, [&](Communicator& comm) {
    comm.flight().keep_in(dir_);
    for (std::int64_t call = 0; call < kCalls; ++call) sum(comm, 1);
    comm.flight().note(FlightRecorder::End::error, 3, "bad \"data\"\nin \\ here");
    EXPECT_TRUE(comm.flight().write());
  }));
  const Json json = record(0);
  EXPECT_EQ(json["text"], "bad \"data\"\nin \\ here");
  ASSERT_EQ(json["calls"].size(), FlightRecorder::kEntries);
  EXPECT_EQ(json["calls"].front()["sequence"], 45);
  EXPECT_EQ(json["calls"].back()["sequence"], kCalls);
}

TEST_F(FlightRecorderTest, AnEndInOrderLeavesNothing) {
  expect_no_errors(run_ranks(2, {}, [&](Communicator& comm) {
    comm.flight().keep_in(dir_);
    sum(comm, 10);
    comm.flight().write_at_signal(SIGTERM, false);
    EXPECT_EQ(record(comm.rank())["end"], "asked");
    EXPECT_EQ(record(comm.rank())["code"], SIGTERM);
    sum(comm, 10);
  }));
  EXPECT_FALSE(fs::exists(path(0)));
  EXPECT_FALSE(fs::exists(path(1)));
}

TEST_F(FlightRecorderTest, WhoIsWaitedForIsWrittenDown) {
  CommunicatorOptions options;
  options.timeout_s = 0.2;
  static_cast<void>(run_ranks(3, options, [&](Communicator& comm) {
    comm.flight().keep_in(dir_);
    sum(comm, 10);
    if (comm.rank() == 2) std::this_thread::sleep_for(std::chrono::milliseconds(500));
    sum(comm, 10);
  }));
  const Json waited = record(0)["calls"][1]["waited_for"];
  ASSERT_FALSE(waited.empty());
  EXPECT_EQ(waited[0], 2);
  // The rank that was late learns of it when it comes.
  EXPECT_EQ(record(2)["end"], "communication");
}

TEST_F(FlightRecorderTest, AnErrorOfARankIsNoted) {
  const auto errors = run_ranks(2, {}, [&](Communicator& comm) {
    comm.flight().keep_in(dir_);
    noting_failure(comm.flight(), [&] {
      sum(comm, 10);
      if (comm.rank() == 1) fail(ExitCode::communication, "no more");
      sum(comm, 10);
    });
  });
  EXPECT_EQ(record(1)["end"], "error");
  EXPECT_EQ(record(1)["text"], "no more");
  EXPECT_EQ(record(0)["end"], "communication");
  EXPECT_EQ(record(0)["peers"][0]["state"], "failed");
}

TEST_F(FlightRecorderTest, DirectoriesThatCannotBeAreRefused) {
  ThreadGroup group(1);
  FlightRecorder recorder(group.transport(0));
  EXPECT_FALSE(recorder.write());
  EXPECT_THROW(recorder.keep_in(""), Error);
  EXPECT_THROW(recorder.keep_in(std::string(2000, 'x')), Error);
  write_file(dir_, "not a directory");
  recorder.keep_in(dir_ + "/not/there");
  EXPECT_FALSE(recorder.write());
}

TEST_F(FlightRecorderTest, DirectoriesAreMade) {
  dir_ += "/a/b";
  expect_no_errors(run_ranks(1, {}, [&](Communicator& comm) {
    comm.flight().keep_in(dir_);
    EXPECT_FALSE(fs::exists(dir_));
    sum(comm, 10);
    EXPECT_TRUE(comm.flight().write());
    EXPECT_EQ(record(0)["rank"], 0);
  }));
  dir_.resize(dir_.size() - 4);
}

TEST_F(FlightRecorderTest, ARecordThatCannotBeWrittenIsMissed) {
  write_file(dir_, "not a directory");
  ::testing::internal::CaptureStderr();
  static_cast<void>(run_ranks(1, {}, [&](Communicator& comm) {
    comm.flight().keep_in(dir_ + "/a");
    fail(ExitCode::communication, "no more");
  }));
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(text.find("the flight record " + dir_ + "/a/rank-0.json cannot be written"),
            std::string::npos)
      << text;
}

// All of a choice, as it was.
TEST_F(FlightRecorderTest, ChoicesAreWrittenAsTheyWere) {
  const std::vector<std::pair<Choice, Json>> cases = {
      {{Algorithm::double_tree, 16}, {{"algorithm", "double_tree"}, {"segments", 16}}},
      {{Algorithm::double_tree, 64}, {{"algorithm", "double_tree"}, {"segments", 64}}},
      {{Algorithm::hierarchical, 1, Inner::leader, Outer::double_tree},
       {{"algorithm", "hierarchical"}, {"inner", "leader"}, {"outer", "double_tree"}}}};
  for (const auto& one : cases) {
    const Json& expected = one.second;
    CommunicatorOptions options;
    options.chooser = always(one.first);
    options.layout.domain_of = {0, 0, 1, 1};
    static_cast<void>(run_ranks(4, options, [&](Communicator& comm) {
      comm.flight().keep_in(dir_);
      sum(comm, 100);
      EXPECT_TRUE(comm.flight().write());
      const Json call = record(comm.rank())["calls"][0];
      for (const auto& [key, value] : expected.items()) EXPECT_EQ(call[key], value) << key;
    }));
  }
}

// A process that ends by a signal, after a call or in the middle of one.
void die_by(int signal, const std::string& dir, bool handle) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::signal(signal, SIG_DFL);  // shells have programs in the background ignore some
    if (handle) write_flight_records_at_signals();
    ThreadGroup group(1);
    Communicator comm(group.transport(0), {});
    comm.flight().keep_in(dir);
    sum(comm, 3);
    ::raise(signal);
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status)) << status;
  EXPECT_EQ(WTERMSIG(status), signal);
}

TEST_F(FlightRecorderTest, SignalsWriteTheRecordAndStillEndTheProcess) {
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTERM, SIGINT}) {
    fs::remove_all(dir_);
    die_by(signal, dir_, true);
    const Json json = record(0);
    EXPECT_EQ(json["end"], signal == SIGTERM || signal == SIGINT ? "asked" : "crashed");
    EXPECT_EQ(json["code"], signal);
    EXPECT_EQ(json["calls"].size(), 1U);
  }
  fs::remove_all(dir_);
  die_by(SIGKILL, dir_, true);
  EXPECT_FALSE(fs::exists(path(0)));
}

}  // namespace
}  // namespace belay::comm
