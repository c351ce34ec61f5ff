// Training over a slow link: it is named in the metrics, passed by, and losses do not change.

#include "belay/comm/thread_ranks.h"
#include "belay/train/trainer_harness.h"

namespace belay {
namespace {

class LinkWatchTest : public testing::TrainerHarness {
 protected:
  void run(const std::string& out, const std::string& inject, bool stable) const {
    std::vector<std::string> all = {"train.global_batch=8", "train.steps=12",
                                    "comm.force=\"all_reduce:65536-=ring\""};
    if (stable) all.emplace_back("comm.order_stable=true");
    const RunConfig run_config = config(all, 4);
    comm::CommunicatorOptions how;
    how.order_stable = stable;
    how.chooser = comm::with_forced(comm::forced_choices(run_config.comm), &comm::choose_by_size);
    comm::expect_no_errors(comm::run_ranks(
        4, how,
        [&](comm::Communicator& communicator) {
          TrainOptions options = to(out);
          options.communicator = &communicator;
          static_cast<void>(train(run_config, options));
        },
        inject));
  }

  // Records of links, by event.
  [[nodiscard]] static std::vector<nlohmann::json> events(const std::string& out) {
    std::vector<nlohmann::json> found;
    for (const nlohmann::json& record : records_of(out)) {
      if (record.contains("link_event")) found.push_back(record);
    }
    return found;
  }
};

TEST_F(LinkWatchTest, ASlowLinkChangesTimesOnly) {
  const std::string even = "all bandwidth=4e6";
  for (const bool stable : {false, true}) {
    const std::string one = path(fmt::format("even{}", stable));
    const std::string other = path(fmt::format("slow{}", stable));
    run(one, even, stable);
    run(other, even + "; link 1->2 bandwidth=4e5", stable);
    EXPECT_TRUE(events(one).empty()) << events(one).front().dump();
    const auto found = events(other);
    ASSERT_EQ(found.size(), 1U);
    EXPECT_EQ(found[0]["link_event"], "slow_link");
    EXPECT_EQ(found[0]["from_rank"], 1);
    EXPECT_EQ(found[0]["to_rank"], 2);
    EXPECT_EQ(found[0]["comm_epoch"], 1);
    EXPECT_LE(found[0]["step"], 5);
    const auto theirs = steps(one);
    for (const auto& [step, record] : steps(other)) {
      const auto loss = record["loss"].get<double>();
      EXPECT_NEAR(loss, theirs.at(step)["loss"].get<double>(), stable ? 0.0 : 1e-4) << step;
    }
  }
}

}  // namespace
}  // namespace belay
