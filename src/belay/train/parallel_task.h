#pragma once
// For tests: a tiny model trained for some steps on several ranks, which are threads, or on one.

#include "belay/comm/thread_ranks.h"
#include "belay/train/tiny_run.h"

namespace belay::testing {

inline constexpr std::int64_t kRows = 2;  // of a micro-batch

// What a run is asked for.
struct Layout {
  int ranks = 1;
  std::int64_t micro_batches = 4;
  std::size_t bucket_bytes = 1000;
  int buckets = 2;
  bool overlap = true;
  bool stable = false;
  int pipeline_depth = 0;
  int zero = 0;
};

// Changes the batch of a step.
using Edit = std::function<void(std::int64_t step, TinyBatch& batch)>;

// Of four micro-batches the second never has labels, and step 3 has none at all.
inline void drop_labels(std::int64_t step, TinyBatch& batch) {
  const std::size_t micro = batch.targets.size() / 4;
  for (std::size_t i = 0; i < batch.targets.size(); ++i) {
    if (step == 3 || i / micro == 1) batch.targets[i] = -1;
  }
}

struct TaskOutcome {
  std::vector<StepResult> steps;
  std::vector<std::vector<float>> weights;
  // Of the whole, by the first rank.
  std::vector<std::vector<float>> m, v;
};

struct Task {
  ModelConfig model;
  std::string device = "cpu";
  DType dtype = DType::f32;
  std::int64_t steps = 20;
  Edit edit = {};

  // What one rank of the layout does; communicator null: alone.
  [[nodiscard]] TaskOutcome run_rank(const Layout& layout, comm::Communicator* communicator) const {
    ShardOptions shard;
    if (communicator != nullptr && layout.zero > 0) {
      shard = {static_cast<ZeroStage>(layout.zero), communicator->rank(), layout.ranks,
               static_cast<std::int64_t>(layout.bucket_bytes / sizeof(float))};
    }
    TinyRun run(model, kRows, device, dtype, {}, shard);
    const ParameterStore& store = run.program->parameters();
    const BatchShare share{communicator == nullptr ? 0 : communicator->rank(), layout.ranks, kRows,
                           layout.micro_batches};
    std::unique_ptr<GradientExchange> exchange;
    std::unique_ptr<ShardedState> sharded;
    if (shard.stage != ZeroStage::none) {
      sharded = std::make_unique<ShardedState>(
          *run.device, store, *communicator, ShardExchangeOptions{layout.buckets, layout.overlap});
      run.program->set_sharded(sharded.get());
      sharded->share_weights(run.program->lane());
    } else if (communicator != nullptr) {
      const ExchangeOptions options{layout.bucket_bytes, layout.buckets, layout.overlap,
                                    layout.pipeline_depth};
      exchange = std::make_unique<GradientExchange>(store, *communicator, options, nullptr,
                                                    make_round_sum(*run.device, store, options));
      run.program->set_exchange(exchange.get());
    }
    std::unique_ptr<StableSum> stable;
    if (layout.stable) {
      stable = std::make_unique<StableSum>(*run.device, store.owned_gradients(), share.rounds());
      run.program->set_stable_sum(stable.get());
    }
    const OptimizerConfig optimizer = plain_optimizer();
    Stepper stepper(*run.program, optimizer, steps, share, communicator);
    TaskOutcome outcome;
    std::int64_t updates = 0;
    for (std::int64_t step = 1; step <= steps; ++step) {
      TinyBatch batch(model, kRows * layout.micro_batches, static_cast<std::uint64_t>(step));
      if (edit) edit(step, batch);
      std::int64_t mine = 0;
      const StepResult result = stepper.run(step, updates + 1, [&] {
        const std::int64_t row = share.number(mine++) * kRows;
        return batch.micro(row, row + kRows);
      });
      EXPECT_EQ(mine, share.count());
      if (result.outcome == StepOutcome::updated) ++updates;
      outcome.steps.push_back(result);
      outcome.steps.back().squares = {};
    }
    using State = ParameterStore::State;
    const auto whole = [&](State state) {
      std::vector<std::vector<float>> all;
      for (int index = 0; index < run.table.size(); ++index) {
        std::vector<float> values(static_cast<std::size_t>(run.table[index].elements()));
        const bool first = communicator == nullptr || communicator->rank() == 0;
        if (sharded == nullptr) {
          ParameterStore::read(run.program->lane(), store.whole(state, index), values);
        } else {
          sharded->collect(run.program->lane(), state, index,
                           first ? std::span(values) : std::span<float>());
        }
        all.push_back(values);
      }
      return all;
    };
    outcome.weights = whole(State::masters);
    outcome.m = whole(State::m);
    outcome.v = whole(State::v);
    return outcome;
  }

  // Of every rank.
  [[nodiscard]] std::vector<TaskOutcome> run(const Layout& layout) const {
    comm::CommunicatorOptions options;
    options.order_stable = layout.stable;
    if (layout.ranks == 1) return {run_rank(layout, nullptr)};
    std::vector<TaskOutcome> outcomes(static_cast<std::size_t>(layout.ranks));
    comm::expect_no_errors(
        comm::run_ranks(layout.ranks, options, [&](comm::Communicator& communicator) {
          outcomes[static_cast<std::size_t>(communicator.rank())] = run_rank(layout, &communicator);
        }));
    return outcomes;
  }
};

}  // namespace belay::testing
