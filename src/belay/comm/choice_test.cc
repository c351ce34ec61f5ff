#include "belay/comm/choice.h"

#include <gtest/gtest.h>

#include "belay/base/error.h"
#include "belay/comm/calibrate.h"
#include "belay/comm/comm_config.h"
#include "belay/comm/thread_ranks.h"

namespace belay::comm {
namespace {

MachineModel network(double alpha, double beta) {
  MachineModel model;
  model.inner = {Curve::line(alpha, beta), Curve::line(alpha, 1.3 * beta)};
  model.outer = model.inner;
  model.post = Curve::line(alpha / 2, beta);
  model.rank_moves_data = false;
  model.message_gap_s = alpha / 2;
  return model;
}

TEST(Choice, SmallMessagesSaveLatencyAndLargeOnesBytes) {
  const ChoiceTable table(network(1e-5, 1e-10), 16, 65536);
  const Choice small = table.choose(Collective::all_reduce, 256);
  EXPECT_TRUE(small.algorithm == Algorithm::recursive_doubling ||
              small.algorithm == Algorithm::one_shot)
      << to_string(small);
  const Choice large = table.choose(Collective::all_reduce, std::size_t{256} << 20);
  EXPECT_NE(large.algorithm, Algorithm::recursive_doubling);
  EXPECT_NE(large.algorithm, Algorithm::one_shot);
  // Never slower than what is always possible.
  for (const ChoiceEntry& entry : table.entries(Collective::all_reduce)) {
    const double bytes = static_cast<double>(entry.bytes);
    EXPECT_LE(entry.predicted_s, 30 * 1e-5 + 2 * bytes * 1.3e-10) << entry.bytes;
  }
}

// Fewer elements than ranks are elements still.
TEST(Choice, SmallVectorsOfManyRanksSaveLatencyToo) {
  const ChoiceTable table(network(1e-5, 1e-10), 128, 65536);
  for (const Collective collective : {Collective::all_reduce, Collective::all_to_all}) {
    for (const double seconds : table.predictions(collective, 256)) EXPECT_GT(seconds, 0);
  }
  const Choice small = table.choose(Collective::all_reduce, 256);
  EXPECT_TRUE(small.algorithm == Algorithm::recursive_doubling ||
              small.algorithm == Algorithm::one_shot)
      << to_string(small);
}

TEST(Choice, DomainsWithSlowLinksMakeAHierarchy) {
  MachineModel model = network(1e-6, 2e-11);
  for (int rank = 0; rank < 16; ++rank) model.domain_of.push_back(rank % 4);
  model.outer = {Curve::line(2e-5, 1e-9), Curve::line(2e-5, 1e-9)};
  model.domain_link_s_per_byte = 1e-9;
  const ChoiceTable table(model, 16, 65536);
  EXPECT_EQ(table.choose(Collective::all_reduce, std::size_t{1} << 20).algorithm,
            Algorithm::hierarchical);
  EXPECT_NE(table.to_text().find("hierarchical"), std::string::npos);
}

TEST(Choice, EntriesAreFoundBySize) {
  const ChoiceTable table(network(1e-5, 1e-10), 8, 65536);
  const auto entries = table.entries(Collective::all_reduce);
  EXPECT_EQ(table.choose(Collective::all_reduce, 0), entries[0].choice);
  EXPECT_EQ(table.choose(Collective::all_reduce, 1), entries[0].choice);
  for (const ChoiceEntry& entry : entries) {
    EXPECT_EQ(table.choose(Collective::all_reduce, entry.bytes), entry.choice) << entry.bytes;
  }
  EXPECT_EQ(table.choose(Collective::all_reduce, ~std::size_t{0}), entries.back().choice);
}

TEST(Choice, MeasurementsCorrectPredictions) {
  ChoiceTable table(network(1e-5, 1e-10), 8, 65536);
  const auto candidates = table.candidates(Collective::all_reduce);
  // Where it was measured, the last candidate is the fastest by far, another was hopeless.
  MeasuredSize small{4096, std::vector<double>(candidates.size(), 1e-3)};
  small.seconds.back() = 1e-6;
  small.seconds[0] = 0;
  MeasuredSize large{1 << 20, std::vector<double>(candidates.size(), 1e-2)};
  large.seconds[1] = 1e-5;
  const std::vector<MeasuredSize> measured{small, large};
  const Choice last = candidates.back();
  const Choice second = candidates[1];
  table.correct(Collective::all_reduce, measured);
  EXPECT_EQ(table.choose(Collective::all_reduce, 4096), last);
  EXPECT_NEAR(table.entry(Collective::all_reduce, 4096).predicted_s, 1e-6, 1e-9);
  EXPECT_EQ(table.choose(Collective::all_reduce, 1024), last);
  EXPECT_EQ(table.choose(Collective::all_reduce, 1 << 20), second);
  EXPECT_EQ(table.choose(Collective::all_reduce, 1 << 24), second);
}

TEST(Choice, ForcedForARangeOfSizes) {
  const Chooser chooser = with_forced(
      {parse_forced("all_reduce:1000-2000=recursive_doubling"),
       parse_forced("all_reduce:3000-=segmented_ring x4"), parse_forced("broadcast=chain x16"),
       parse_forced("all_reduce:0-10=hierarchical leader/double_tree")},
      choose_by_size);
  EXPECT_EQ(chooser(Collective::all_reduce, 4, 1000).algorithm, Algorithm::recursive_doubling);
  EXPECT_EQ(chooser(Collective::all_reduce, 4, 999).algorithm,
            choose_by_size(Collective::all_reduce, 4, 999).algorithm);
  EXPECT_EQ(to_string(chooser(Collective::all_reduce, 4, 5000)), "segmented_ring x4");
  EXPECT_EQ(to_string(chooser(Collective::broadcast, 4, 5)), "chain x16");
  EXPECT_EQ(to_string(chooser(Collective::all_reduce, 4, 5)), "hierarchical leader/double_tree");
  for (const char* const wrong :
       {"ring", "all_reduce=binomial", "sum=ring", "all_reduce:5=ring", "all_reduce:a-b=ring",
        "all_reduce=ring x0", "all_reduce=hierarchical x/y", "all_reduce:100-50=ring",
        "all_reduce=ring direct/ring", "all_reduce=segmented_ring x9", "all_reduce=direct x4",
        "all_reduce=hierarchical direct/ring x4", "broadcast=chain x1025"}) {
    try {
      parse_forced(wrong);
      ADD_FAILURE() << wrong;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::usage);
    }
  }
  CommConfig config;
  config.force = " all_reduce=ring ; broadcast=binomial;";
  EXPECT_EQ(forced_choices(config).size(), 2U);
}

TEST(Choice, WhatIsForcedMustMeanSomething) {
  const auto expect = [](const char* text, const char* why) {
    try {
      parse_forced(text);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(why), std::string::npos) << error.what();
    }
  };
  expect("all_reduce:100-50=ring", "no size is from 100 to 50");
  expect("all_reduce=ring direct/ring", "ring has no levels");
  expect("all_reduce=direct x4", "direct does not cut vectors into segments");
  expect("all_reduce=hierarchical direct/ring x4",
         "hierarchical direct/ring does not cut vectors into segments");
  expect("all_reduce=segmented_ring x16", "a segmented_ring has 8 segments at most");
  EXPECT_EQ(to_string(parse_forced("all_reduce=segmented_ring x8").choice), "segmented_ring x8");
  EXPECT_EQ(to_string(parse_forced("all_reduce=hierarchical ring/double_tree x4").choice),
            "hierarchical ring/double_tree x4");
  EXPECT_EQ(parse_forced("all_reduce:50-50=ring").most_bytes, 50U);
}

TEST(Choice, ASignatureHoldsAllOfIt) {
  for (const char* const text :
       {"broadcast=chain x16", "broadcast=chain x64", "broadcast=chain x1024",
        "all_reduce=hierarchical leader/double_tree x4",
        "all_reduce=hierarchical ring/recursive_doubling"}) {
    const Choice choice = parse_forced(text).choice;
    Signature signature;
    put_choice(signature, choice);
    EXPECT_EQ(choice_of(signature), choice) << text;
  }
}

TEST(Choice, FixedTablesChangeAtTheirThresholds) {
  constexpr std::size_t kMiB = std::size_t{1} << 20;
  const auto first = [](std::size_t bytes) {
    return choose_doubling_tree_ring(Collective::all_reduce, 8, bytes).algorithm;
  };
  EXPECT_EQ(first(kMiB - 1), Algorithm::recursive_doubling);
  EXPECT_EQ(first(kMiB), Algorithm::double_tree);
  EXPECT_EQ(first(16 * kMiB), Algorithm::ring);
  const auto second = [](std::size_t bytes) {
    return choose_ring_tree_hierarchical(Collective::all_reduce, 8, bytes).algorithm;
  };
  EXPECT_EQ(second(kMiB - 1), Algorithm::ring);
  EXPECT_EQ(second(kMiB), Algorithm::double_tree);
  EXPECT_EQ(second(128 * kMiB), Algorithm::hierarchical);
}

TEST(Choice, ChoosersGoByTheirNames) {
  expect_no_errors(run_ranks(2, {}, [](Communicator& comm) {
    for (const ChooserKind kind : {ChooserKind::size, ChooserKind::doubling_tree_ring,
                                   ChooserKind::ring_tree_hierarchical}) {
      const auto named =
          chooser_named(comm, name_of(kind), {parse_forced("all_reduce:0-10=direct")}, {});
      EXPECT_EQ(named.table, "");
      EXPECT_EQ(named.chooser(Collective::all_reduce, 2, 5).algorithm, Algorithm::direct);
    }
    EXPECT_THROW(chooser_named(comm, "best", {}, {}), Error);
  }));
}

TEST(Choice, CalibrationGivesAllRanksTheSameTable) {
  std::vector<std::string> tables(4);
  CommunicatorOptions options;
  options.layout.domain_of = {0, 0, 1, 1};
  expect_no_errors(run_ranks(4, options, [&](Communicator& comm) {
    comm.set_chooser(choose_ring_tree_hierarchical);
    const auto table = predict_choices(comm, {0, 0, 1, 1}, {.most_bytes = std::size_t{64} << 10});
    tables[static_cast<std::size_t>(comm.rank())] = table->to_text();
    // That changes nothing by itself.
    EXPECT_EQ(comm.choice_of(Collective::all_reduce, 12'000).algorithm, Algorithm::ring);
    // With it, calls work.
    comm.set_chooser(by_table(table));
    EXPECT_EQ(comm.choice_of(Collective::all_reduce, 12'000),
              table->choose(Collective::all_reduce, 12'000));
    std::vector<float> values(3000, 1.0F);
    comm.all_reduce(values.data(), values.data(), 3000, DType::f32, ReduceOp::sum);
    for (const float value : values) ASSERT_EQ(value, 4.0F);
  }));
  for (const std::string& table : tables) EXPECT_EQ(table, tables[0]);
  EXPECT_NE(tables[0].find("all_reduce"), std::string::npos);
}

}  // namespace
}  // namespace belay::comm
