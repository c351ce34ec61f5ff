// Data-parallel ranks get the losses and weights of one rank. Ranks are threads here.

#include <gtest/gtest.h>

#include <cmath>

#include "belay/train/parallel_task.h"

namespace belay {
namespace {

using testing::kRows;
using testing::Layout;
using testing::plain_optimizer;
using testing::Task;
using testing::TaskOutcome;
using testing::tiny_model;
using testing::TinyBatch;
using testing::TinyRun;

void expect_same(const TaskOutcome& one, const std::vector<TaskOutcome>& ranks, double tolerance) {
  for (const TaskOutcome& rank : ranks) {
    ASSERT_EQ(rank.steps.size(), one.steps.size());
    for (std::size_t i = 0; i < one.steps.size(); ++i) {
      EXPECT_EQ(rank.steps[i].outcome, one.steps[i].outcome) << "step " << i + 1;
      EXPECT_EQ(rank.steps[i].counted, one.steps[i].counted) << "step " << i + 1;
      if (one.steps[i].outcome != StepOutcome::updated) continue;
      EXPECT_NEAR(rank.steps[i].loss, one.steps[i].loss, tolerance * one.steps[i].loss)
          << "step " << i + 1;
    }
    // Replicas stay replicas.
    EXPECT_TRUE(rank.weights == ranks.front().weights);
  }
}

TEST(DataParallelTest, AnyNumberOfRanksGivesTheLossesOfOne) {
  for (const Family family : {Family::gpt2, Family::llama}) {
    Task task{tiny_model(family)};
    task.model.dropout = 0.1;
    for (const std::int64_t micro_batches : {4, 5}) {
      const TaskOutcome one = task.run({1, micro_batches}).front();
      for (const int ranks : {2, 3, 4}) {
        SCOPED_TRACE(fmt::format("{} micro-batches on {} ranks", micro_batches, ranks));
        expect_same(one, task.run({ranks, micro_batches}), 1e-5);
      }
    }
  }
}

TEST(DataParallelTest, SizesOfBucketsAndOverlapChangeNothing) {
  Task task{tiny_model(Family::qwen2)};
  task.steps = 3;
  const TaskOutcome one = task.run({}).front();
  for (const Layout& layout :
       {Layout{2, 4, 4, 1}, Layout{2, 4, 1 << 20, 4}, Layout{2, 4, 4096, 1, false},
        Layout{2, 4, 333, 3}, Layout{4, 4, 1 << 20, 4, false}}) {
    SCOPED_TRACE(fmt::format("{} ranks, buckets of {} bytes", layout.ranks, layout.bucket_bytes));
    expect_same(one, task.run(layout), 1e-5);
  }
}

TEST(DataParallelTest, PipelinedMicroBatches) {
  for (const Family family : {Family::gpt2, Family::llama}) {
    Task task{tiny_model(family)};
    task.model.dropout = 0.1;
    // 5 and 6 do not divide by all: ranks sit the last round out. With 3 some have only one.
    for (const std::int64_t micro_batches : {3, 4, 5, 6}) {
      const TaskOutcome one = task.run({1, micro_batches}).front();
      for (const int ranks : {2, 3, 4}) {
        if (ranks > micro_batches) continue;
        SCOPED_TRACE(fmt::format("{} micro-batches on {} ranks", micro_batches, ranks));
        const int depth = ranks == 3 ? 8 : 1;
        const std::size_t bytes = ranks == 4 ? 1 << 20 : 1000;
        expect_same(one, task.run({ranks, micro_batches, bytes, 1, true, false, depth}), 1e-5);
      }
    }
  }
  Task guarded{tiny_model(Family::llama), "guard"};
  guarded.steps = 3;
  const Layout layout{2, 5, 1000, 1, true, false, 2};
  expect_same(guarded.run({1, 5}).front(), guarded.run(layout), 1e-5);
}

// The same bits in every run, whatever the timing of the ranks.
TEST(DataParallelTest, PipelinesAreRepeatable) {
  Task task{tiny_model(Family::llama)};
  task.steps = 5;
  const Layout layout{3, 8, 700, 1, true, false, 2};
  const std::vector<TaskOutcome> first = task.run(layout);
  const std::vector<TaskOutcome> second = task.run(layout);
  EXPECT_TRUE(first.front().weights == second.front().weights);
  expect_same(first.front(), second, 0);
}

TEST(DataParallelTest, DevicesWithMemoryOfTheirOwnAndLowPrecision) {
  Task task{tiny_model(Family::llama), "guard"};
  task.steps = 2;
  expect_same(task.run({}).front(), task.run({2}), 1e-5);
  for (const DType dtype : {DType::bf16, DType::f16}) {
    Task low{tiny_model(Family::llama), "cpu", dtype};
    low.steps = 5;
    expect_same(low.run({}).front(), low.run({2}), 1e-2);
  }
}

TEST(DataParallelTest, StableSumsHaveTheBitsOfOneRank) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Task task{tiny_model(Family::llama), "cpu", dtype};
    task.model.dropout = 0.1;
    // 7 do not divide by 2 or 4, so some ranks sit the last round out.
    for (const std::int64_t micro_batches : {4, 6, 7, 8}) {
      const Layout alone{1, micro_batches, 1000, 2, true, true};
      const TaskOutcome one = task.run(alone).front();
      for (const int ranks : {2, 4}) {
        SCOPED_TRACE(fmt::format("{} micro-batches on {} ranks", micro_batches, ranks));
        const Layout layout{ranks, micro_batches, ranks == 2 ? 333U : 20000U, 2, true, true};
        for (const TaskOutcome& rank : task.run(layout)) {
          for (std::size_t i = 0; i < one.steps.size(); ++i) {
            EXPECT_EQ(rank.steps[i].loss, one.steps[i].loss) << "step " << i + 1;
            EXPECT_EQ(rank.steps[i].grad_norm, one.steps[i].grad_norm) << "step " << i + 1;
          }
          EXPECT_TRUE(rank.weights == one.weights);
        }
      }
      // Another order of the same sum, so not the same bits, but the same to rounding.
      if (dtype == DType::f32) expect_same(one, task.run({1, micro_batches}), 1e-5);
    }
  }
}

TEST(DataParallelTest, BatchesWithoutLabelsTakePart) {
  Task task{tiny_model(Family::llama)};
  task.steps = 6;
  task.edit = testing::drop_labels;
  const TaskOutcome one = task.run({}).front();
  EXPECT_EQ(one.steps[2].outcome, StepOutcome::no_labels);
  for (const int ranks : {2, 4}) expect_same(one, task.run({ranks}), 1e-5);
  expect_same(one, task.run({2, 4, 1000, 2, true, false, 2}), 1e-5);
}

// An infinity of an early micro-batch is remembered, though later ones are finite.
TEST(DataParallelTest, PipelinesKnowWhoWentWrong) {
  Task task{tiny_model(Family::llama)};
  comm::expect_no_errors(comm::run_ranks(2, {}, [&](comm::Communicator& communicator) {
    TinyRun run(task.model, kRows);
    const ParameterStore& store = run.program->parameters();
    const ExchangeOptions options{1000, 1, true, 2};
    GradientExchange exchange(store, communicator, options, nullptr,
                              make_round_sum(*run.device, store, options));
    run.program->set_exchange(&exchange);
    const OptimizerConfig optimizer = plain_optimizer();
    Stepper stepper(*run.program, optimizer, 3, {communicator.rank(), 2, kRows, 6}, &communicator);
    const TinyBatch batch(task.model, kRows);
    const Tensor weight = store.weight(0);
    std::vector<float> kept(static_cast<std::size_t>(weight.elements()));
    ParameterStore::read(run.program->lane(), weight, kept);
    const auto put = [&](std::span<const float> values) {
      ParameterStore::write(run.program->lane(), weight, values);
    };
    for (std::int64_t step = 1; step <= 2; ++step) {
      int micro = 0;
      const StepResult result = stepper.run(step, 1, [&] {
        // The weights break for the first micro-batch of rank 1 in the first step.
        const bool breaks = step == 1 && communicator.rank() == 1 && micro == 0;
        if (breaks) put(std::vector<float>(kept.size(), INFINITY));
        if (micro == 1 && step == 1 && communicator.rank() == 1) put(kept);
        ++micro;
        return batch.micro();
      });
      EXPECT_EQ(result.outcome, step == 1 ? StepOutcome::non_finite : StepOutcome::updated);
      EXPECT_EQ(result.bad_rank, step == 1 ? 1 : 0);
    }
  }));
}

// A number that breaks on one rank skips the step on all.
TEST(DataParallelTest, RanksSkipTogether) {
  Task task{tiny_model(Family::llama), "cpu", DType::f16};
  std::vector<std::vector<double>> squares(2);
  comm::expect_no_errors(comm::run_ranks(2, {}, [&](comm::Communicator& communicator) {
    TinyRun run(task.model, kRows, "cpu", DType::f16);
    GradientExchange exchange(run.program->parameters(), communicator, {1000, 2});
    run.program->set_exchange(&exchange);
    const OptimizerConfig optimizer = plain_optimizer();
    const std::vector<std::vector<float>> before = run.all_weights();
    if (communicator.rank() == 1) {
      // Infinities that only this rank meets.
      const Tensor weight = run.program->parameters().weight(0);
      const std::vector<std::uint16_t> large(static_cast<std::size_t>(weight.elements()), 0x7c00);
      run.program->lane().copy_in(weight.data, large.data(), weight.bytes());
      run.program->lane().wait();
    }
    Stepper stepper(*run.program, optimizer, 3, {communicator.rank(), 2, kRows, 2}, &communicator);
    const TinyBatch batch(task.model, 2 * kRows);
    const StepResult result = stepper.run(1, 1, [&] {
      const std::int64_t row = communicator.rank() * kRows;
      return batch.micro(row, row + kRows);
    });
    EXPECT_EQ(result.outcome, StepOutcome::non_finite);
    EXPECT_EQ(result.bad_rank, 1);
    squares[static_cast<std::size_t>(communicator.rank())] = {result.squares.begin(),
                                                              result.squares.end()};
    EXPECT_TRUE(run.all_weights() == before);
  }));
  // What the next loss scale is decided from; of the sum, though rank 0 had finite numbers.
  ASSERT_FALSE(squares[0].empty());
  for (std::size_t i = 0; i < squares[0].size(); ++i) {
    EXPECT_EQ(std::isfinite(squares[0][i]), std::isfinite(squares[1][i])) << i;
  }
  EXPECT_FALSE(std::isfinite(squares[0].front()));
}

TEST(DataParallelTest, RanksStopTogether) {
  comm::expect_no_errors(comm::run_ranks(3, {}, [&](comm::Communicator& communicator) {
    TinyRun run(tiny_model(Family::gpt2), kRows);
    GradientExchange exchange(run.program->parameters(), communicator, {});
    run.program->set_exchange(&exchange);
    const OptimizerConfig optimizer = plain_optimizer();
    Stepper stepper(*run.program, optimizer, 3, {communicator.rank(), 3, kRows, 3}, &communicator);
    const TinyBatch batch(run.model, kRows);
    const auto source = [&] { return batch.micro(); };
    EXPECT_FALSE(stepper.run(1, 1, source).stop);
    if (communicator.rank() == 1) stepper.ask_to_stop();
    EXPECT_TRUE(stepper.run(2, 2, source).stop);
  }));
}

// A rank that fails in the middle of a step takes the others with it, with a reason.
TEST(DataParallelTest, ARankThatFailsEndsAll) {
  comm::CommunicatorOptions options;
  options.timeout_s = 20;
  const std::vector<std::string> errors =
      comm::run_ranks(3, options, [&](comm::Communicator& communicator) {
        TinyRun run(tiny_model(Family::gpt2), kRows);
        GradientExchange exchange(run.program->parameters(), communicator, {});
        run.program->set_exchange(&exchange);
        const OptimizerConfig optimizer = plain_optimizer();
        Stepper stepper(*run.program, optimizer, 3, {communicator.rank(), 3, kRows, 3},
                        &communicator);
        const TinyBatch batch(run.model, kRows);
        stepper.run(1, 1, [&] { return batch.micro(); });
        stepper.run(2, 2, [&]() -> MicroBatch {
          if (communicator.rank() == 2) fail(ExitCode::communication, "the data are gone");
          return batch.micro();
        });
      });
  EXPECT_EQ(errors[2], "the data are gone");
  for (const int rank : {0, 1}) {
    EXPECT_NE(errors[static_cast<std::size_t>(rank)].find("rank 2"), std::string::npos)
        << errors[static_cast<std::size_t>(rank)];
  }
}

}  // namespace
}  // namespace belay
