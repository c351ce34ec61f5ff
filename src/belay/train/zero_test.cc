// A state that is sharded over the ranks gives the losses, norms and weights of one rank. Ranks are
// threads here.

#include <gtest/gtest.h>

#include <cmath>

#include "belay/base/allocation_count.h"
#include "belay/base/error.h"
#include "belay/train/parallel_task.h"

namespace belay {
namespace {

using testing::Layout;
using testing::Task;
using testing::TaskOutcome;
using testing::tiny_model;
using testing::TinyBatch;

constexpr int kStages[] = {1, 2, 3};

Layout sharded(int zero, int ranks, std::int64_t micro_batches, std::size_t bucket_bytes = 1000) {
  Layout layout{ranks, micro_batches, bucket_bytes};
  layout.zero = zero;
  return layout;
}

std::string text_of(const Layout& layout) {
  return fmt::format("zero {}, {} micro-batches on {} ranks, buckets of {} bytes", layout.zero,
                     layout.micro_batches, layout.ranks, layout.bucket_bytes);
}

void expect_near(const TaskOutcome& one, const std::vector<TaskOutcome>& ranks, double tolerance) {
  for (const TaskOutcome& rank : ranks) {
    ASSERT_EQ(rank.steps.size(), one.steps.size());
    for (std::size_t i = 0; i < one.steps.size(); ++i) {
      EXPECT_EQ(rank.steps[i].outcome, one.steps[i].outcome) << "step " << i + 1;
      EXPECT_EQ(rank.steps[i].counted, one.steps[i].counted) << "step " << i + 1;
      if (one.steps[i].outcome != StepOutcome::updated) continue;
      EXPECT_NEAR(rank.steps[i].loss, one.steps[i].loss, tolerance * one.steps[i].loss)
          << "step " << i + 1;
      // Every rank decides from the same norm.
      EXPECT_EQ(rank.steps[i].grad_norm, ranks.front().steps[i].grad_norm) << "step " << i + 1;
    }
  }
}

void expect_equal(const TaskOutcome& one, const std::vector<TaskOutcome>& ranks) {
  for (const TaskOutcome& rank : ranks) {
    for (std::size_t i = 0; i < one.steps.size(); ++i) {
      EXPECT_EQ(rank.steps[i].outcome, one.steps[i].outcome) << "step " << i + 1;
      if (one.steps[i].outcome != StepOutcome::updated) continue;
      EXPECT_EQ(rank.steps[i].loss, one.steps[i].loss) << "step " << i + 1;
      EXPECT_EQ(rank.steps[i].grad_norm, one.steps[i].grad_norm) << "step " << i + 1;
    }
  }
  EXPECT_TRUE(ranks.front().weights == one.weights);
  EXPECT_TRUE(ranks.front().m == one.m);
  EXPECT_TRUE(ranks.front().v == one.v);
}

TEST(ZeroTest, AnyStageAndNumberOfRanksGivesTheLossesOfOne) {
  for (const Family family : {Family::gpt2, Family::llama}) {
    Task task{tiny_model(family)};
    task.model.dropout = 0.1;
    for (const std::int64_t micro_batches : {4, 5}) {
      if (family == Family::llama && micro_batches == 4) continue;
      const TaskOutcome one = task.run({1, micro_batches}).front();
      for (const int ranks : {2, 3, 4}) {
        for (const int zero : kStages) {
          const Layout layout = sharded(zero, ranks, micro_batches);
          SCOPED_TRACE(text_of(layout));
          expect_near(one, task.run(layout), 1e-5);
        }
      }
    }
  }
}

// With sums in a stable order nothing shows how many ranks there are, and what they share.
TEST(ZeroTest, StableRunsHaveTheBitsOfOneRank) {
  for (const Family family : {Family::gpt2, Family::llama}) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      Task task{tiny_model(family), "cpu", dtype};
      task.model.dropout = 0.1;
      task.steps = 4;
      for (const std::int64_t micro_batches : {4, 7}) {
        Layout alone{1, micro_batches};
        alone.stable = true;
        const TaskOutcome one = task.run(alone).front();
        for (const int ranks : {2, 4}) {
          for (const int zero : kStages) {
            Layout layout = sharded(zero, ranks, micro_batches, ranks == 2 ? 333 : 20000);
            layout.stable = true;
            SCOPED_TRACE(text_of(layout) + " " + std::string(name_of(dtype)));
            expect_equal(one, task.run(layout));
          }
        }
      }
    }
  }
}

// Two ranks with a micro-batch each add two numbers: the order-stable mode is not needed.
TEST(ZeroTest, BucketsAndOverlapChangeNothing) {
  Task task{tiny_model(Family::qwen2)};
  task.model.tie_embeddings = false;
  task.steps = 3;
  const TaskOutcome plain = task.run({2, 2}).front();
  for (const int zero : kStages) {
    for (const std::size_t bytes : {4U, 333U, 5000U, 1U << 20}) {
      for (const int buckets : {1, 4}) {
        Layout layout = sharded(zero, 2, 2, bytes);
        layout.buckets = buckets;
        layout.overlap = bytes != 333;
        SCOPED_TRACE(text_of(layout));
        expect_equal(plain, task.run(layout));
      }
    }
  }
}

TEST(ZeroTest, MoreRanksThanPieces) {
  Task task{tiny_model(Family::gpt2)};
  task.steps = 2;
  task.model.layers = 1;
  const TaskOutcome one = task.run({1, 12}).front();
  for (const int zero : kStages) expect_near(one, task.run(sharded(zero, 12, 12, 4)), 1e-5);
}

TEST(ZeroTest, DevicesWithMemoryOfTheirOwn) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Task task{tiny_model(Family::llama), "guard", dtype};
    task.steps = 2;
    const TaskOutcome one = task.run({1, 3}).front();
    for (const int zero : kStages) {
      expect_near(one, task.run(sharded(zero, 2, 3)), dtype == DType::f32 ? 1e-5 : 1e-2);
    }
  }
}

TEST(ZeroTest, BatchesWithoutLabelsTakePart) {
  Task task{tiny_model(Family::llama)};
  task.steps = 6;
  task.edit = testing::drop_labels;
  const TaskOutcome one = task.run({}).front();
  EXPECT_EQ(one.steps[2].outcome, StepOutcome::no_labels);
  for (const int zero : kStages) {
    for (const int ranks : {2, 3}) expect_near(one, task.run(sharded(zero, ranks, 4)), 1e-5);
  }
}

// A number that breaks on one rank, in any of its micro-batches, skips the step on all.
TEST(ZeroTest, RanksSkipTogether) {
  const ModelConfig model = tiny_model(Family::llama);
  for (const int zero : {1, 2}) {
    for (const std::int64_t micro_batches : {2, 3}) {
      comm::expect_no_errors(comm::run_ranks(2, {}, [&](comm::Communicator& communicator) {
        const bool breaks = communicator.rank() == 1;
        testing::TinyRun run(model, 2, "cpu", DType::f16, {},
                             {static_cast<ZeroStage>(zero), communicator.rank(), 2, 500});
        ShardedState sharded(*run.device, run.program->parameters(), communicator, {});
        run.program->set_sharded(&sharded);
        sharded.share_weights(run.program->lane());
        const Tensor weight = run.program->parameters().weight(0);
        if (breaks) {
          const std::vector<std::uint16_t> large(static_cast<std::size_t>(weight.elements()),
                                                 0x7c00);
          run.program->lane().copy_in(weight.data, large.data(), weight.bytes());
          run.program->lane().wait();
        }
        const OptimizerConfig optimizer = testing::plain_optimizer();
        const BatchShare share{communicator.rank(), 2, 2, micro_batches};
        Stepper stepper(*run.program, optimizer, 3, share, &communicator);
        const TinyBatch batch(model, 2);
        const StepResult result = stepper.run(1, 1, [&] { return batch.micro(); });
        EXPECT_EQ(result.outcome, StepOutcome::non_finite);
        EXPECT_EQ(result.bad_rank, 1);
        for (const double square : result.squares) EXPECT_FALSE(std::isfinite(square));
        // Nothing of it is left: once the weights are whole again, the step is a good one.
        sharded.share_weights(run.program->lane());
        if (breaks) run.program->parameters().initialise(run.program->lane(), 1);
        sharded.share_weights(run.program->lane());
        const StepResult next = stepper.run(2, 1, [&] { return batch.micro(); });
        EXPECT_EQ(next.outcome, StepOutcome::updated);
      }));
    }
  }
}

TEST(ZeroTest, AWarmStepMakesNoHeapAllocation) {
  for (const int zero : kStages) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      std::int64_t allocated = 0;
      comm::expect_no_errors(comm::run_ranks(2, {}, [&](comm::Communicator& communicator) {
        const ModelConfig model = tiny_model(Family::gpt2);
        testing::TinyRun run(model, 2, "cpu", dtype, {},
                             {static_cast<ZeroStage>(zero), communicator.rank(), 2, 500});
        ShardedState sharded(*run.device, run.program->parameters(), communicator, {});
        run.program->set_sharded(&sharded);
        sharded.share_weights(run.program->lane());
        const OptimizerConfig optimizer = testing::plain_optimizer();
        // The second rank sits the last round out.
        Stepper stepper(*run.program, optimizer, 99, {communicator.rank(), 2, 2, 3}, &communicator);
        const TinyBatch batch(model, 2);
        const MicroBatchSource source = [&] { return batch.micro(); };
        std::int64_t before = 0;
        for (std::int64_t step = 1; step <= 8; ++step) {
          communicator.barrier();
          if (step == 4) before = allocation_count();
          stepper.run(step, step, source);
        }
        communicator.barrier();
        if (communicator.rank() == 0) allocated = allocation_count() - before;
      }));
      EXPECT_EQ(allocated, 0) << "zero " << zero << " " << name_of(dtype);
    }
  }
}

// A rank that fails in the middle of a step takes the others with it, with a reason.
TEST(ZeroTest, ARankThatFailsEndsAll) {
  const ModelConfig model = tiny_model(Family::gpt2);
  for (const int zero : kStages) {
    comm::CommunicatorOptions options;
    options.timeout_s = 20;
    const std::vector<std::string> errors =
        comm::run_ranks(3, options, [&](comm::Communicator& communicator) {
          testing::TinyRun run(model, 2, "cpu", DType::f32, {},
                               {static_cast<ZeroStage>(zero), communicator.rank(), 3, 500});
          ShardedState sharded(*run.device, run.program->parameters(), communicator, {});
          run.program->set_sharded(&sharded);
          sharded.share_weights(run.program->lane());
          const OptimizerConfig optimizer = testing::plain_optimizer();
          Stepper stepper(*run.program, optimizer, 3, {communicator.rank(), 3, 2, 6},
                          &communicator);
          const TinyBatch batch(model, 2);
          int calls = 0;
          const MicroBatchSource source = [&]() -> MicroBatch {
            if (communicator.rank() == 2 && ++calls == 4) {
              fail(ExitCode::communication, "the data are gone");
            }
            return batch.micro();
          };
          stepper.run(1, 1, source);
          stepper.run(2, 2, source);
        });
    EXPECT_EQ(errors[2], "the data are gone");
    for (const std::size_t rank : {0U, 1U}) {
      EXPECT_NE(errors[rank].find("rank 2"), std::string::npos) << zero << ": " << errors[rank];
    }
  }
}

}  // namespace
}  // namespace belay
