#include "belay/comm/rank_map.h"

#include <gtest/gtest.h>

#include "belay/base/error.h"
#include "belay/comm/checker.h"

namespace belay::comm {
namespace {

constexpr std::string_view kHeading = "rank_id,npu_id,hccs_domain\n";

std::string error_of(const std::string& lines) {
  try {
    parse_rank_map(std::string(kHeading) + lines, "map.csv");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::data);
    return error.what();
  }
  return {};
}

TEST(RankMap, IsReadAndApplied) {
  const RankMap map =
      parse_rank_map(std::string(kHeading) + "1, 1,0\r\n0,0,0\n\n2,0,7\n3,1,7\n4,2,7", "map.csv");
  ASSERT_EQ(map.ranks(), 5);
  EXPECT_EQ(map.entries[4].npu, 2);
  const Layout layout = map.layout();
  EXPECT_EQ(layout.domain_of, (std::vector<int>{0, 0, 7, 7, 7}));
  const Schedule schedule =
      make_schedule({.algorithm = Algorithm::hierarchical, .ranks = 5, .count = 100}, layout);
  EXPECT_EQ(check_schedule(schedule), "");
  EXPECT_EQ(parse_rank_map(map.to_csv(), "again").to_csv(), map.to_csv());
}

TEST(RankMap, ATornDomainIsRefusedWithTheCorrection) {
  const std::string error = error_of("0,0,0\n1,0,1\n2,1,0\n3,1,1\n");
  EXPECT_NE(error.find("domain 0 is torn apart: rank 0 belongs to it, rank 1 does not, rank 2"),
            std::string::npos)
      << error;
  const std::string fix = error.substr(error.find(kHeading));
  EXPECT_EQ(fix, std::string(kHeading) + "0,0,0\n1,1,0\n2,0,1\n3,1,1\n");
  EXPECT_EQ(parse_rank_map(fix, "fix").ranks(), 4);
}

TEST(RankMap, WhatIsWrongIsNamed) {
  const auto expect = [](const std::string& lines, std::string_view part) {
    const std::string error = error_of(lines);
    EXPECT_NE(error.find(part), std::string::npos) << "'" << part << "' in: " << error;
  };
  expect("0,0,0\n0,1,0\n", "line 3: rank 0 is there twice");
  expect("0,0,0\n2,1,0\n", "rank 1 is missing");
  expect("0,0,0\n1,0,0\n", "line 3: device 0 of domain 0 has two ranks");
  expect("0,0\n", "line 2: '0,0' is not a rank, a device and a domain");
  expect("0,0,0,0\n", "is not a rank, a device and a domain");
  expect("0,-1,0\n", "is not a rank, a device and a domain");
  expect("99999999999,0,0\n", "is not a rank, a device and a domain");
  expect("", "there are no ranks in it");
  EXPECT_THROW(parse_rank_map("rank,npu\n", "map.csv"), Error);
  EXPECT_THROW(read_rank_map("/nonexistent/map.csv"), Error);
}

}  // namespace
}  // namespace belay::comm
