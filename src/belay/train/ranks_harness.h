#pragma once
// For tests: whole runs on several ranks, which are threads.

#include "belay/comm/thread_ranks.h"
#include "belay/train/trainer_harness.h"

namespace belay::testing {

class RanksHarness : public TrainerHarness {
 protected:
  [[nodiscard]] RunConfig config_of(int ranks, const std::vector<std::string>& overrides) const {
    std::vector<std::string> all = {"train.global_batch=8", "train.eval_every=5",
                                    "train.dtype=\"bf16\""};
    all.insert(all.end(), overrides.begin(), overrides.end());
    return config(all, ranks);
  }

  // The first rank's summary.
  [[nodiscard]] TrainSummary run(int ranks, const TrainOptions& options,
                                 const std::vector<std::string>& overrides = {}) const {
    const RunConfig run_config = config_of(ranks, overrides);
    TrainSummary summary;
    comm::CommunicatorOptions how;
    how.order_stable = run_config.comm.order_stable;
    comm::expect_no_errors(comm::run_ranks(ranks, how, [&](comm::Communicator& communicator) {
      TrainOptions own = options;
      own.communicator = &communicator;
      const TrainSummary mine = train(run_config, own);
      if (communicator.rank() == 0) summary = mine;
    }));
    return summary;
  }

  static void expect_losses(const std::string& run, const std::string& other, double tolerance) {
    const auto ours = steps(run);
    const auto theirs = steps(other);
    EXPECT_FALSE(ours.empty());
    for (const auto& [step, record] : ours) {
      ASSERT_TRUE(theirs.contains(step)) << step;
      EXPECT_NEAR(record["loss"].get<double>(), theirs.at(step)["loss"].get<double>(), tolerance)
          << "step " << step;
      EXPECT_EQ(record["tokens"], theirs.at(step)["tokens"]);
      EXPECT_EQ(record["counted_tokens"], theirs.at(step)["counted_tokens"]);
    }
  }
};

}  // namespace belay::testing
