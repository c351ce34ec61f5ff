// What the benchmark of collectives says of itself, on a single rank.

#include "belay/comm/collectives_bench.h"

#include <gtest/gtest.h>

#include <memory>

#include "belay/base/error.h"
#include "belay/comm/algorithm.h"

namespace belay::comm {
namespace {

CollectivesReport bench(const std::string& algorithm, const std::string& inject) {
  const std::unique_ptr<World> world = World::join();
  CollectivesBench options;
  options.algorithm = algorithm;
  options.chooser = "size";
  options.inject = inject;
  options.min_bytes = options.max_bytes = 4096;
  options.iterations = 1;
  options.seconds = 1e-9;
  options.gloo = false;
  return bench_collectives(*world, options, [](const CollectiveTiming&) {});
}

TEST(CollectivesBench, ARowNamesTheAlgorithmThatRan) {
  EXPECT_EQ(bench("direct_store", "").rows.at(0).algorithm, "direct_store");
  // Injected faults need messages that are received.
  const char* const kFaults = "all bandwidth=1e12";
  EXPECT_EQ(bench("direct_store", kFaults).rows.at(0).algorithm, "direct");
  const CollectivesReport all = bench("all", kFaults);
  EXPECT_EQ(all.rows.size(), algorithms_of(Collective::all_reduce).size() - 1);
  for (std::size_t row = 0; row < all.rows.size(); ++row) {
    for (std::size_t other = 0; other < row; ++other) {
      EXPECT_NE(all.rows[row].algorithm, all.rows[other].algorithm);
    }
  }
}

TEST(CollectivesBench, WrongResultsAreAFailureOnAllRanks) {
  CollectivesReport report;
  report.rows.resize(2);
  report.rows[0].correct = report.rows[1].correct = true;
  refuse_wrong_results(report);
  report.rows[1].correct = false;
  report.rows[1].algorithm = "ring";
  report.rows[1].bytes = 4096;
  for (const int rank : {0, 1}) {
    report.rank = rank;
    try {
      refuse_wrong_results(report);
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::failure);
      EXPECT_STREQ(error.what(),
                   rank == 0 ? "wrong results: all_reduce by ring of 4096 bytes" : "");
    }
  }
}

}  // namespace
}  // namespace belay::comm
