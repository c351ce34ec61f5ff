// Steps that break, with compressed gradients: skipped, and named, as without compression.

#include <gtest/gtest.h>

#include <limits>

#include "belay/comm/thread_ranks.h"
#include "belay/parallel/compressed_reducer.h"
#include "belay/train/tiny_run.h"

namespace belay {
namespace {

using comm::Compression;
using testing::plain_optimizer;
using testing::tiny_model;
using testing::TinyBatch;
using testing::TinyRun;

constexpr std::int64_t kRows = 2;

// What both ranks find in a step in which something of rank 1 breaks.
struct Found {
  StepOutcome outcome = StepOutcome::updated;
  int bad_parameter = -2;
  int bad_rank = -2;
  bool unchanged = false;  // weights, and what is owed

  friend bool operator==(const Found&, const Found&) = default;
};

// In the forward pass, by a weight that is not a number; or in the backward pass alone, by losses
// multiplied by so much that gradients leave the range.
enum class Break { forward, backward };

std::vector<Found> break_step(Compression mode, Break where) {
  std::vector<Found> found(2);
  comm::expect_no_errors(comm::run_ranks(2, {}, [&](comm::Communicator& communicator) {
    TinyRun run(tiny_model(Family::llama), kRows);
    const ParameterTable& table = run.program->parameters().table();
    std::unique_ptr<BucketReducer> reducer;
    CompressedReducer* compressor = nullptr;
    if (mode == Compression::none) {
      reducer = std::make_unique<DenseReducer>(communicator);
    } else {
      auto compressed = std::make_unique<CompressedReducer>(
          communicator, table, 4000, CompressionOptions{mode}, compressible(table));
      compressor = compressed.get();
      reducer = std::move(compressed);
    }
    BucketReducer* const each_step = reducer.get();
    GradientExchange exchange(run.program->parameters(), communicator,
                              ExchangeOptions{16000, 2, true}, std::move(reducer));
    run.program->set_exchange(&exchange);
    const OptimizerConfig optimizer = plain_optimizer();
    Stepper stepper(*run.program, optimizer, 3, {communicator.rank(), 2, kRows, 2}, &communicator);
    const TinyBatch batch(run.model, 2 * kRows);
    const auto step = [&](std::int64_t number, double multiplier = 1) {
      each_step->begin_step(1);
      const StepResult result = stepper.run(
          number, number,
          [&] {
            const std::int64_t row = communicator.rank() * kRows;
            return batch.micro(row, row + kRows);
          },
          multiplier);
      each_step->end_step(result.outcome == StepOutcome::updated);
      return result;
    };
    EXPECT_EQ(step(1).outcome, StepOutcome::updated);
    if (where == Break::forward && communicator.rank() == 1) {
      std::vector<float> weight = run.read(1);
      weight[0] = std::numeric_limits<float>::quiet_NaN();
      ParameterStore::write(run.program->lane(), run.program->parameters().master(1), weight);
    }
    const auto owed = [&] {
      std::vector<float> values;
      for (int p = 0; compressor != nullptr && p < table.size(); ++p) {
        if (!compressor->residuals().has(p)) continue;
        std::vector<float> mine(static_cast<std::size_t>(table[p].elements()));
        compressor->residuals().read(p, 1, mine);
        values.insert(values.end(), mine.begin(), mine.end());
      }
      return values;
    };
    const std::vector<float> owed_before = owed();
    const std::vector<float> weights_before = run.read(table.size() - 1);
    const bool too_much = where == Break::backward && communicator.rank() == 1;
    const StepResult result = step(2, too_much ? 0x1p127 : 1);
    found[static_cast<std::size_t>(communicator.rank())] = {
        result.outcome, result.bad_parameter, result.bad_rank,
        owed() == owed_before && run.read(table.size() - 1) == weights_before};
  }));
  return found;
}

TEST(CompressedStepTest, WhatBreaksIsSkippedAndNamedAsWithout) {
  for (const Break where : {Break::forward, Break::backward}) {
    const bool forward = where == Break::forward;
    const std::vector<Found> dense = break_step(Compression::none, where);
    EXPECT_EQ(dense[0].outcome, StepOutcome::non_finite);
    EXPECT_TRUE(dense[0] == dense[1]);
    EXPECT_EQ(dense[0].bad_rank, 1);
    EXPECT_EQ(dense[0].bad_parameter < 0, forward);
    for (const Compression mode : {Compression::int8, Compression::topk, Compression::topk_int8}) {
      const std::vector<Found> found = break_step(mode, where);
      for (const Found& rank : found) {
        EXPECT_EQ(rank.outcome, dense[0].outcome) << name_of(mode) << " " << forward;
        EXPECT_EQ(rank.bad_parameter, dense[0].bad_parameter) << name_of(mode) << " " << forward;
        EXPECT_EQ(rank.bad_rank, dense[0].bad_rank) << name_of(mode) << " " << forward;
        EXPECT_TRUE(rank.unchanged) << name_of(mode) << " " << forward;
      }
    }
  }
}

}  // namespace
}  // namespace belay
