#include "belay/comm/topology.h"

#include <gtest/gtest.h>

#include "belay/base/error.h"
#include "belay/comm/processor_domain.h"
#include "belay/comm/thread_ranks.h"

namespace belay::comm {
namespace {

using Numbers = std::vector<int>;

TEST(Topology, APackageIsFoundByTheProcessorsThatAProcessMayUse) {
  const std::string two = "pack:2 core:4 pu:1";
  EXPECT_EQ(bound_package(two, "0-3"), 0);
  EXPECT_EQ(bound_package(two, "5"), 1);
  EXPECT_EQ(bound_package(two, "3-4"), -1);
  EXPECT_EQ(bound_package(two, "0-7"), -1);
  EXPECT_EQ(bound_package("pack:1 core:4 pu:1", "0"), -1);
  EXPECT_THROW(bound_package("no such machine", "0"), Error);
}

TEST(Topology, DomainsArePackagesWhereAllRanksOfAHostAreBound) {
  const Topology topology = topology_of_hosts({0, 0, 0, 0, 1, 1}, {0, 1, 0, 1, 0, -1});
  EXPECT_EQ(topology.domain_of, (Numbers{0, 1, 0, 1, 2, 2}));
  EXPECT_EQ(topology.source, "processor packages");
  EXPECT_EQ(topology.layout().ring, (Numbers{0, 2, 1, 3, 4, 5}));
  EXPECT_EQ(topology.to_text(),
            "6 ranks on 2 hosts, 3 domains (processor packages): 0 2 | 1 3 | 4 5");
}

TEST(Topology, RanksDealtOutOverHostsMakeARingThatEntersEachHostOnce) {
  const Topology topology = topology_of_hosts({0, 1, 0, 1}, {-1, -1, -1, -1});
  EXPECT_EQ(topology.domain_of, (Numbers{0, 1, 0, 1}));
  EXPECT_EQ(topology.source, "hosts");
  EXPECT_EQ(topology.layout().ring, (Numbers{0, 2, 1, 3}));
}

TEST(Topology, AMapIsApplied) {
  const RankMap map =
      parse_rank_map("rank_id,npu_id,hccs_domain\n0,0,4\n1,1,4\n2,2,5\n3,3,5\n", "map.csv");
  const Topology topology = topology_of_map(map, {0, 0, 0, 0}, "map.csv");
  EXPECT_EQ(topology.domain_of, (Numbers{0, 0, 1, 1}));
  EXPECT_EQ(topology.to_text(), "4 ranks on 1 host, 2 domains (rank map map.csv): 0 1 | 2 3");
}

TEST(Topology, AMapThatTheHostsContradictIsRefusedWithOneThatWorks) {
  const RankMap map =
      parse_rank_map("rank_id,npu_id,hccs_domain\n0,0,0\n1,1,0\n2,2,0\n3,3,0\n", "map.csv");
  try {
    topology_of_map(map, {0, 0, 1, 1}, "map.csv");
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::data);
    const std::string text = error.what();
    EXPECT_NE(text.find("domain 0 reaches over hosts: rank 0 runs on host 0, rank 2 on host 1"),
              std::string::npos)
        << text;
    const RankMap fixed =
        parse_rank_map(text.substr(text.find("rank_id,")), "the map of the message");
    EXPECT_EQ(topology_of_map(fixed, {0, 0, 1, 1}, "fixed").domains(), 2);
  }
  EXPECT_THROW(topology_of_map(map, {0, 0, 0}, "map.csv"), Error);
}

std::string refusal(const RankMap& map, const Numbers& host_of) {
  try {
    topology_of_map(map, host_of, "map.csv");
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Topology, WhereRanksAreDealtOutOverHostsOnlyAMapThatWorksIsSuggested) {
  const std::string heading = "rank_id,npu_id,hccs_domain\n";
  // Cut at the hosts, this domain would be torn apart.
  const RankMap one = parse_rank_map(heading + "0,0,0\n1,1,0\n2,2,0\n3,3,0\n", "map.csv");
  const std::string without = refusal(one, {0, 1, 0, 1});
  EXPECT_NE(without.find("start them host by host (mpirun --map-by slot)"), std::string::npos)
      << without;
  EXPECT_EQ(without.find("rank_id,"), std::string::npos) << without;
  // These leave every rank by itself.
  const RankMap two = parse_rank_map(heading + "0,0,0\n1,1,0\n2,0,1\n3,1,1\n", "map.csv");
  const std::string with = refusal(two, {0, 1, 0, 1});
  ASSERT_NE(with.find("rank_id,"), std::string::npos) << with;
  const RankMap suggested = parse_rank_map(with.substr(with.find("rank_id,")), "suggested");
  EXPECT_EQ(topology_of_map(suggested, {0, 1, 0, 1}, "suggested").domains(), 4);
}

// A domain's number is a name; nothing may be as large as it.
TEST(Topology, DomainsOfAnyNumberAreCountedFromZero) {
  const RankMap map = parse_rank_map(
      "rank_id,npu_id,hccs_domain\n0,0,2147483647\n1,1,2147483647\n2,2,1000000000\n3,3,7\n",
      "map.csv");
  const Topology topology = topology_of_map(map, {0, 0, 0, 0}, "map.csv");
  EXPECT_EQ(topology.domain_of, (Numbers{0, 0, 1, 2}));
}

Choice hierarchical(Collective collective, int ranks, std::size_t bytes) {
  if (collective != Collective::all_reduce) return choose_by_size(collective, ranks, bytes);
  return {.algorithm = Algorithm::hierarchical};
}

TEST(Topology, ALayoutThatIsSetHoldsFromTheNextCallOn) {
  expect_no_errors(run_ranks(4, {.chooser = hierarchical}, [](Communicator& comm) {
    const auto sum = [&] {
      std::vector<float> values(1001, 1.0F);
      comm.all_reduce(values.data(), values.data(), 1001, DType::f32, ReduceOp::sum);
      for (const float value : values) ASSERT_EQ(value, 4.0F);
    };
    sum();
    const Topology found = find_topology(comm, {0, 1, 0, 1});
    EXPECT_EQ(found.hosts(), 2);
    comm.set_layout(found.layout());
    sum();
  }));
}

}  // namespace
}  // namespace belay::comm
