// Records of real failures, and damaged ones, as the doctor sees them.

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "belay/base/file.h"
#include "belay/comm/thread_ranks.h"
#include "belay/doctor/desync_report.h"

namespace belay {
namespace {

namespace fs = std::filesystem;
using comm::Communicator;

class DesyncTest : public ::testing::Test {
 protected:
  DesyncTest() { fs::remove_all(dir_); }
  ~DesyncTest() override { fs::remove_all(dir_); }

  using Body = std::function<void(Communicator&)>;
  [[nodiscard]] DesyncReport after(int ranks, const Body& body, double timeout_s = 0.3) const {
    comm::CommunicatorOptions options;
    options.timeout_s = timeout_s;
    static_cast<void>(comm::run_ranks(ranks, options, [&](Communicator& comm) {
      comm.flight().keep_in(dir_);
      comm::noting_failure(comm.flight(), [&] { body(comm); });
    }));
    return desync_report(read_flight_records(dir_));
  }
  [[nodiscard]] std::string path(int rank) const {
    return dir_ + "/rank-" + std::to_string(rank) + ".json";
  }
  static void sum(Communicator& comm, std::int64_t count) {
    std::vector<float> values(static_cast<std::size_t>(count), 1.0F);
    comm.all_reduce(values.data(), values.data(), count, DType::f32, comm::ReduceOp::sum);
  }
  static void expect_culprit(const DesyncReport& report, int rank, Culprit kind,
                             std::int64_t sequence) {
    ASSERT_EQ(report.culprits.size(), 1U) << report_text(report);
    EXPECT_EQ(report.culprits[0].rank, rank) << report_text(report);
    EXPECT_EQ(name_of(report.culprits[0].kind), name_of(kind)) << report_text(report);
    EXPECT_EQ(report.sequence, sequence) << report_text(report);
    EXPECT_EQ(report.agreed, sequence - 1) << report_text(report);
  }

  std::string dir_ = ::testing::TempDir() + "belay-desync-" + std::to_string(::getpid());
};

TEST_F(DesyncTest, AnotherCall) {
  const DesyncReport report = after(4, [](Communicator& comm) {
    for (int call = 0; call < 5; ++call) sum(comm, 10);
    sum(comm, comm.rank() == 2 ? 11 : 10);
  });
  expect_culprit(report, 2, Culprit::another_call, 6);
  EXPECT_EQ(report.call.find("all_reduce (sum of 10 f32)"), 0U) << report.call;
  EXPECT_NE(report.culprits[0].why.find("called all_reduce (sum of 11 f32)"), std::string::npos);
  EXPECT_NE(report_text(report).find("rank 2 called"), std::string::npos);
  const auto json = nlohmann::json::parse(report_json(report));
  EXPECT_EQ(json["culprits"][0]["rank"], 2);
  EXPECT_EQ(json["culprits"][0]["kind"], "another_call");
  EXPECT_EQ(json["by_rank"].size(), 4U);
}

TEST_F(DesyncTest, OfTwoRanksNobodyCanSayWhichOneIsWrong) {
  const DesyncReport report =
      after(2, [](Communicator& comm) { sum(comm, comm.rank() == 0 ? 10 : 20); });
  EXPECT_EQ(report.culprits.size(), 2U) << report_text(report);
  EXPECT_NE(report_text(report).find("both are listed"), std::string::npos);
}

TEST_F(DesyncTest, AnotherAlgorithm) {
  const DesyncReport report = after(3, [](Communicator& comm) {
    if (comm.rank() == 1) comm.set_chooser(comm::always({comm::Algorithm::direct}));
    sum(comm, 10);
  });
  // Where the third had not chosen yet, nobody can say which of the two is wrong.
  EXPECT_TRUE(std::any_of(report.culprits.begin(), report.culprits.end(),
                          [](const DesyncCulprit& one) {
                            return one.rank == 1 && one.kind == Culprit::another_call &&
                                   one.why.find("by direct") != std::string::npos;
                          }))
      << report_text(report);
}

TEST_F(DesyncTest, ARankThatComesTooLate) {
  const DesyncReport report = after(
      3,
      [](Communicator& comm) {
        sum(comm, 10);
        if (comm.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(1500));
        sum(comm, 10);
      },
      0.6);
  // It came when the others had given up, and was told so before it entered the call.
  ASSERT_EQ(report.culprits.size(), 1U) << report_text(report);
  EXPECT_EQ(report.culprits[0].rank, 1) << report_text(report);
  EXPECT_EQ(report.sequence, 2);
}

TEST_F(DesyncTest, ARankThatIsLate) {
  const DesyncReport report = after(3, [](Communicator& comm) {
    sum(comm, 10);
    if (comm.rank() == 1) {
      // Busy, and away before the others can tell it.
      const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(700);
      while (std::chrono::steady_clock::now() < end) {
      }
      static_cast<void>(comm.flight().write());
      fail(ExitCode::communication, "");
    }
    sum(comm, 10);
  });
  // It noted that another rank has failed.
  expect_culprit(report, 1, Culprit::late, 2);
  EXPECT_NE(report_text(report).find("has not called it"), std::string::npos);
  EXPECT_NE(report_text(report).find("the ranks said: all_reduce #2"), std::string::npos);
}

TEST_F(DesyncTest, ARankThatLeavesInOrder) {
  const DesyncReport report = after(4, [](Communicator& comm) {
    sum(comm, 10);
    if (comm.rank() == 3) return;
    sum(comm, 10);
  });
  expect_culprit(report, 3, Culprit::left_early, 2);
  EXPECT_EQ(report.by_rank[3].record, "none");
  EXPECT_EQ(report.by_rank[3].end, "in order");
}

TEST_F(DesyncTest, ARankWithAnErrorOfItsOwn) {
  const DesyncReport report = after(3, [](Communicator& comm) {
    sum(comm, 10);
    if (comm.rank() == 0) fail(ExitCode::communication, "the disk is on fire");
    sum(comm, 10);
  });
  expect_culprit(report, 0, Culprit::own_error, 2);
  EXPECT_NE(report.culprits[0].why.find("the disk is on fire"), std::string::npos);
}

TEST_F(DesyncTest, ARankWithoutARecord) {
  static_cast<void>(after(4, [](Communicator& comm) {
    sum(comm, 10);
    if (comm.rank() == 2) std::this_thread::sleep_for(std::chrono::milliseconds(700));
    sum(comm, 10);
  }));
  // As if it had been killed.
  fs::remove(path(2));
  const DesyncReport report = desync_report(read_flight_records(dir_));
  expect_culprit(report, 2, Culprit::no_record, 2);
  EXPECT_NE(report.culprits[0].why.find("others saw it finish call #1 last"), std::string::npos)
      << report.culprits[0].why;
}

TEST_F(DesyncTest, RunDirectoriesWork) {
  const std::string run = dir_;
  dir_ += "/flight";
  fs::create_directories(run);
  static_cast<void>(after(2, [](Communicator& comm) { sum(comm, comm.rank() + 1); }));
  EXPECT_EQ(desync_report(read_flight_records(run)).ranks, 2);
  dir_ = run;
}

TEST_F(DesyncTest, WhatIsLeftOfACutFileIsUsed) {
  const DesyncReport whole = after(3, [](Communicator& comm) {
    for (int call = 0; call < 20; ++call) sum(comm, 10);
    sum(comm, comm.rank() == 1 ? 11 : 10);
  });
  expect_culprit(whole, 1, Culprit::another_call, 21);
  const std::string text = read_file(path(0));
  const std::string other = read_file(path(1));
  // However much is missing, the others still say who it was, and no cut is taken for a culprit.
  for (std::size_t size = 0; size < text.size(); size += 97) {
    std::ofstream(path(0), std::ios::binary) << text.substr(0, size);
    const DesyncReport report = desync_report(read_flight_records(dir_));
    ASSERT_FALSE(report.culprits.empty()) << "cut at " << size << "\n" << report_text(report);
    EXPECT_TRUE(std::any_of(report.culprits.begin(), report.culprits.end(),
                            [](const DesyncCulprit& one) { return one.rank == 1; }))
        << "cut at " << size << "\n"
        << report_text(report);
    EXPECT_EQ(report.sequence, 21) << "cut at " << size << "\n" << report_text(report);
  }
  // Of the two that are left nobody can say which one is wrong; rank 2 called what rank 0 had.
  std::ofstream(path(0), std::ios::binary) << text.substr(0, text.size() - 300);
  EXPECT_EQ(desync_report(read_flight_records(dir_)).by_rank[0].record, "cut");
}

TEST_F(DesyncTest, DamagedFilesAreNamed) {
  static_cast<void>(after(3, [](Communicator& comm) { sum(comm, comm.rank() == 1 ? 11 : 10); }));
  const std::string good = read_file(path(0));
  for (const std::string& bad : {std::string(), std::string("{}"), std::string("[1, 2]"),
                                 std::string("null"), std::string("\xff\xfe\x00\n\n", 5),
                                 std::string(100'000, '['), std::string(R"({"belay_flight": 2})"),
                                 std::string(R"({"belay_flight": 1, "rank": "x"})")}) {
    std::ofstream(path(0), std::ios::binary) << bad;
    const DesyncReport report = desync_report(read_flight_records(dir_));
    ASSERT_EQ(report.damaged.size(), 1U) << bad.substr(0, 40);
    EXPECT_EQ(report.damaged[0].file, "rank-0.json");
    EXPECT_NE(report_text(report).find("rank-0.json cannot be used"), std::string::npos);
    EXPECT_EQ(report.by_rank[0].record, "none");
  }
  // Records of another run, or twice the same.
  std::string foreign = good;
  foreign.replace(foreign.find("\"ranks\": 3"), 10, "\"ranks\": 9");
  std::ofstream(path(2), std::ios::binary) << foreign;
  std::ofstream(path(0), std::ios::binary) << good;
  EXPECT_EQ(read_flight_records(dir_).damaged.size(), 1U);
  std::ofstream(path(2), std::ios::binary) << good;
  EXPECT_EQ(read_flight_records(dir_).damaged.size(), 1U);
}

TEST_F(DesyncTest, WithoutRecordsThereIsNothingToJudge) {
  for (const bool exists : {false, true}) {
    if (exists) fs::create_directories(dir_);
    try {
      static_cast<void>(read_flight_records(dir_));
      ADD_FAILURE() << exists;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::data);
      EXPECT_NE(std::string(error.what()).find(dir_), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace belay
