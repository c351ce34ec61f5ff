#include "belay/comm/fault_script.h"

#include <gtest/gtest.h>

#include <cmath>

#include "belay/base/error.h"

namespace belay::comm {
namespace {

TEST(FaultScript, LinksAndSpans) {
  const FaultScript script(
      "all bandwidth=2e9 ; link 0-1 bandwidth=100M delay=5ms from=100 to=400;link 2->3 delay=50us; "
      "link 0->1 drop@call=30; rank 3 bandwidth=1k from=2s to=3s;",
      4);
  EXPECT_EQ(script.link(1, 2, 1, 0).bandwidth, 2e9);
  EXPECT_EQ(script.link(1, 2, 1, 0).delay_s, 0);
  EXPECT_NEAR(script.link(2, 3, 1, 0).delay_s, 50e-6, 1e-12);
  EXPECT_EQ(script.link(3, 2, 1, 0).delay_s, 0);
  for (const auto& [call, limit] : {std::pair{99U, 2e9}, {100U, 1e8}, {400U, 1e8}, {401U, 2e9}}) {
    EXPECT_EQ(script.link(0, 1, call, 0).bandwidth, limit) << call;
    EXPECT_EQ(script.link(1, 0, call, 0).bandwidth, limit) << call;
  }
  EXPECT_FALSE(script.link(0, 1, 29, 0).drop);
  EXPECT_TRUE(script.link(0, 1, 30, 0).drop);
  EXPECT_FALSE(script.link(1, 0, 30, 0).drop);
  for (const auto& [seconds, limit] : {std::pair{1.9, 2e9}, {2.0, 1e3}, {3.1, 2e9}}) {
    EXPECT_EQ(script.link(3, 0, 1, seconds).bandwidth, limit) << seconds;
    EXPECT_EQ(script.link(0, 3, 1, seconds).bandwidth, limit) << seconds;
    EXPECT_EQ(script.link(0, 2, 1, seconds).bandwidth, 2e9);
  }
}

TEST(FaultScript, FaultsOfRanks) {
  const FaultScript script("rank 1 stop@call=40; rank 2 kill@time=3s; rank 0 late=5ms from=7 to=8",
                           3);
  ASSERT_EQ(script.faults().size(), 3U);
  EXPECT_EQ(script.faults()[0].kind, FaultKind::stop);
  EXPECT_EQ(script.faults()[0].from, 1);
  EXPECT_EQ(script.faults()[0].span.first_call, 40U);
  EXPECT_EQ(script.faults()[1].kind, FaultKind::kill);
  EXPECT_EQ(script.faults()[1].span.first_s, 3);
  EXPECT_EQ(script.late(0, 6, 0), 0);
  EXPECT_EQ(script.late(0, 8, 0), 5e-3);
  EXPECT_EQ(script.late(1, 8, 0), 0);
  EXPECT_EQ(script.link(1, 2, 100, 10).bandwidth, std::numeric_limits<double>::infinity());
  EXPECT_TRUE(FaultScript(" ; ", 2).empty());
}

TEST(FaultScript, SaysWhatItDoesNotUnderstand) {
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"lonk 0-1 drop", "'lonk'"},
      {"link 0-1", "says nothing"},
      {"link 0-4 drop", "'4' in 'link 0-4 drop': there are 4 ranks"},
      {"link 0-0 drop", "joins two ranks"},
      {"link 01 drop", "'01'"},
      {"all drop; link 0-x drop", "'x' in ' link 0-x drop'"},
      {"rank -1 stop", "'-1'"},
      {"all kill", "that happens to a rank"},
      {"link 0-1 late=5ms", "that happens to a rank"},
      {"all bandwidth=0", "'bandwidth=0'"},
      {"all bandwidth", "1e8 or 100M"},
      {"all bandwidth=-3", "1e8 or 100M"},
      {"all bandwidth=nan", "1e8 or 100M"},
      {"all bandwidth=1e8x", "1e8 or 100M"},
      {"all delay=5", "5ms"},
      {"all drop=3", "takes no value"},
      {"all drop@3", "after '@'"},
      {"all drop@call=", "'drop@call='"},
      {"all speed=3", "the faults are"},
      {"all drop from=10 to=9", "ends before it begins"},
  };
  for (const auto& [text, part] : wrong) {
    try {
      static_cast<void>(FaultScript(text, 4));
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::usage);
      const std::string message = error.what();
      EXPECT_NE(message.find(part), std::string::npos) << message;
      EXPECT_NE(message.find("a clause is"), std::string::npos) << message;
    }
  }
}

}  // namespace
}  // namespace belay::comm
