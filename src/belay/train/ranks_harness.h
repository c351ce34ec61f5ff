#pragma once
// For tests: whole runs on several ranks, which are threads.

#include "belay/comm/thread_ranks.h"
#include "belay/train/trainer_harness.h"

namespace belay::testing {

// Runs the body on ranks that are threads; what each of them threw, ExitCode::ok if nothing.
inline std::vector<Error> errors_of_ranks(int ranks,
                                          const std::function<void(comm::Communicator&)>& body) {
  comm::ThreadGroup group(ranks);
  std::vector<Error> errors(static_cast<std::size_t>(ranks), Error(ExitCode::ok, ""));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        comm::Communicator communicator(group.transport(rank), {});
        body(communicator);
      } catch (...) {
        errors[static_cast<std::size_t>(rank)] = current_error();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

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

  // What each rank's training ends with. `change`: of a rank's own settings.
  [[nodiscard]] std::vector<Error> errors_of(
      int ranks, const std::string& out, const std::vector<std::string>& overrides,
      const std::function<void(int rank, RunConfig&, TrainOptions&)>& change = {}) const {
    const RunConfig shared = config_of(ranks, overrides);
    return errors_of_ranks(ranks, [&](comm::Communicator& communicator) {
      RunConfig own = shared;
      TrainOptions options = to(out);
      options.communicator = &communicator;
      if (change) change(communicator.rank(), own, options);
      static_cast<void>(train(own, options));
    });
  }

  [[nodiscard]] static bool log_has(const std::string& run, std::string_view text) {
    return read_file(run + "/log.txt").find(text) != std::string::npos;
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
