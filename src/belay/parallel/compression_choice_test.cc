#include "belay/parallel/compression_choice.h"

#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "belay/comm/fault_transport.h"
#include "belay/comm/thread_ranks.h"
#include "belay/parallel/test_table.h"

namespace belay {
namespace {

using comm::CommConfig;
using comm::Compression;

ParameterTable some_tensors() {
  return testing::table_of({{"matrix", {256, 128}}, {"norm", {4096}}, {"little", {8, 8}}});
}

// What every rank chooses: names, and why.
std::pair<std::string, std::string> choose(const CommConfig& config, const std::string& faults = "",
                                           const std::string& before = "",
                                           bool is_measured = false) {
  const ParameterTable table = some_tensors();
  comm::ThreadGroup group(2);
  std::vector<std::pair<std::string, std::string>> chosen(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      comm::FaultTransport transport(group.transport(rank), comm::FaultScript(faults, 2),
                                     comm::RankIs::thread);
      comm::Communicator communicator(transport, {});
      const std::vector<bool> marked = marked_by_names(table, before);
      const CompressionChoice choice = choose_compression(communicator, table, 1 << 15, config,
                                                          before.empty() ? nullptr : &marked);
      EXPECT_EQ(choice.measured, is_measured);
      chosen[static_cast<std::size_t>(rank)] = {names_of(table, choice.compressed), choice.why};
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(chosen[0], chosen[1]);
  return chosen[0];
}

CommConfig config_of(Compression mode, comm::CompressionWhen when = comm::CompressionWhen::always) {
  CommConfig config;
  config.compression = mode;
  config.compression_when = when;
  return config;
}

TEST(CompressionChoiceTest, AlwaysTakesMatricesThatAreNotSmall) {
  EXPECT_EQ(choose(config_of(Compression::int8)).first, "matrix");
}

TEST(CompressionChoiceTest, SlowLinksMakeItPay) {
  const CommConfig config = config_of(Compression::int8, comm::CompressionWhen::pays);
  const auto [names, why] = choose(config, "all bandwidth=1e7", "", true);
  EXPECT_EQ(names, "matrix") << why;
  EXPECT_NE(why.find("int8 pays for 1 of 3 tensors"), std::string::npos) << why;
}

TEST(CompressionChoiceTest, AMeasuredChoiceIsKept) {
  const CommConfig config = config_of(Compression::int8, comm::CompressionWhen::pays);
  EXPECT_EQ(choose(config, "all bandwidth=1e7", "-", true).first, "-");
  EXPECT_EQ(choose(config, "", "matrix", true).first, "matrix");
}

TEST(CompressionChoiceTest, SharesThatLeaveOutLittleAreNotWorthPlaces) {
  CommConfig config = config_of(Compression::topk);
  config.topk_ratio = 0.95;
  EXPECT_EQ(choose(config).first, "-");
  config.compression_min_sparsity = 0.04;
  EXPECT_EQ(choose(config).first, "matrix");
}

TEST(CompressionChoiceTest, OneDomainHasNoSlowLinks) {
  CommConfig config = config_of(Compression::int8);
  config.compression_level = comm::CompressionLevel::slow;
  const auto [names, why] = choose(config);
  EXPECT_EQ(names, "-");
  EXPECT_NE(why.find("there is one domain"), std::string::npos) << why;
}

TEST(CompressionChoiceTest, PredictsBetweenAndBeyondWhatWasTimed) {
  const std::vector<CompressionTiming> timings = {{1000, 1e-3, 2e-3}, {100000, 1e-1, 2e-2}};
  EXPECT_DOUBLE_EQ(predict_compression(timings, 10).dense_s, 1e-3);
  EXPECT_NEAR(predict_compression(timings, 10000).dense_s, 1e-2, 1e-9);
  EXPECT_NEAR(predict_compression(timings, 10000).compressed_s, 2e-3 * std::sqrt(10), 1e-9);
  EXPECT_NEAR(predict_compression(timings, 200000).dense_s, 2e-1, 1e-9);
}

TEST(CompressionChoiceTest, NamesThatTheModelLacksAreRefused) {
  const ParameterTable table = some_tensors();
  EXPECT_EQ(marked_by_names(table, "matrix little"), (std::vector<bool>{true, false, true}));
  EXPECT_THROW(static_cast<void>(marked_by_names(table, "matrix bias")), Error);
}

}  // namespace
}  // namespace belay
