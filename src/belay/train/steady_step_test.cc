// What a long run relies on: a warm step asks the heap for nothing and memory does not grow.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "belay/base/allocation_count.h"
#include "belay/comm/thread_ranks.h"
#include "belay/data/loader.h"
#include "belay/observe/memory.h"
#include "belay/train/batch_source.h"
#include "belay/train/tiny_run.h"

namespace belay {
namespace {

// An llm.c token file of `count` 16-bit ids below 64.
std::string write_tokens(const std::string& name, std::int32_t count) {
  const std::string path = ::testing::TempDir() + name;
  std::ofstream file(path, std::ios::binary);
  std::vector<std::int32_t> header(256, 0);
  header[0] = 20240520;
  header[1] = 1;
  header[2] = count;
  file.write(reinterpret_cast<const char*>(header.data()), 1024);
  for (std::int32_t i = 0; i < count; ++i) {
    const auto id = static_cast<std::uint16_t>(i * 7 % 64);
    file.write(reinterpret_cast<const char*>(&id), 2);
  }
  return path;
}

struct SteadyRun {
  testing::TinyRun run;
  data::Dataset dataset;
  data::SampleOrder order;
  data::Loader loader;
  BatchAdapter adapter;
  OptimizerConfig optimizer = testing::plain_optimizer();
  Stepper stepper;
  MicroBatchSource source;
  std::int64_t done = 0;

  SteadyRun(const ModelConfig& model, DType dtype, const std::string& tokens, int workers)
      : run(model, 2, "cpu", dtype),
        dataset(data::Dataset::open(tokens, model.seq_len)),
        order(1, dataset.samples()),
        loader(dataset, order, {.rows = 2, .workers = workers}),
        adapter(2, model.seq_len, true),
        stepper(*run.program, optimizer, 1'000'000, BatchShare{.micro_batches = 2}),
        source([this] {
          const data::Batch& batch = loader.next();
          return MicroBatch{adapter.adapt(batch), batch.counted};
        }) {}

  void step() {
    ++done;
    stepper.run(done, done, source);
  }
};

TEST(SteadyStepTest, AWarmStepMakesNoHeapAllocation) {
  const std::string tokens = write_tokens("belay-steady-a.bin", 4000);
  for (const Family family : {Family::gpt2, Family::llama, Family::qwen2}) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      ModelConfig model = testing::tiny_model(family, 16);
      model.dropout = 0.1;
      SteadyRun steady(model, dtype, tokens, 1);
      for (int i = 0; i < 3; ++i) steady.step();
      const std::int64_t before = allocation_count();
      for (int i = 0; i < 20; ++i) steady.step();
      EXPECT_EQ(allocation_count() - before, 0) << name_of(family) << " " << name_of(dtype);
    }
  }
  std::filesystem::remove(tokens);
}

// Ranks are threads here, so that everything that any of them does counts.
TEST(SteadyStepTest, AWarmStepOfSeveralRanksMakesNoHeapAllocation) {
  struct Way {
    bool overlap = true;
    bool stable = false;
    int depth = 0;
  };
  for (const Way& way : {Way{}, Way{false}, Way{true, true}, Way{true, false, 2}}) {
    comm::CommunicatorOptions options;
    options.order_stable = way.stable;
    comm::expect_no_errors(comm::run_ranks(2, options, [&](comm::Communicator& communicator) {
      testing::TinyRun run(testing::tiny_model(Family::llama));
      const ParameterStore& store = run.program->parameters();
      const BatchShare share{communicator.rank(), 2, 2, 6};
      const ExchangeOptions how{1000, 2, way.overlap, way.depth};
      GradientExchange exchange(store, communicator, how, nullptr,
                                make_round_sum(*run.device, store, how));
      run.program->set_exchange(&exchange);
      std::unique_ptr<StableSum> stable;
      if (way.stable) {
        stable = std::make_unique<StableSum>(*run.device, store.owned_gradients(), share.rounds());
      }
      run.program->set_stable_sum(stable.get());
      const OptimizerConfig optimizer = testing::plain_optimizer();
      Stepper stepper(*run.program, optimizer, 1000, share, &communicator);
      const testing::TinyBatch batch(run.model, 2);
      const MicroBatchSource source = [&] { return batch.micro(); };
      const auto steps = [&](std::int64_t first, std::int64_t count) {
        for (std::int64_t step = first; step < first + count; ++step) {
          stepper.run(step, step, source);
        }
        communicator.barrier();
        const std::int64_t allocations = allocation_count();
        communicator.barrier();
        return allocations;
      };
      const std::int64_t before = steps(1, 3);
      EXPECT_EQ(steps(4, 20) - before, 0)
          << "overlap " << way.overlap << ", stable " << way.stable << ", depth " << way.depth;
      communicator.barrier();
    }));
  }
}

TEST(SteadyStepTest, MemoryDoesNotGrowOverTwoThousandSteps) {
  const std::string tokens = write_tokens("belay-steady-b.bin", 4000);
  for (const int workers : {0, 4}) {
    SteadyRun steady(testing::tiny_model(Family::llama, 16), DType::f32, tokens, workers);
    std::int64_t at_500 = 0;
    for (int step = 1; step <= 2000; ++step) {
      steady.step();
      if (step == 500) at_500 = resident_bytes();
    }
    EXPECT_LE(resident_bytes() - at_500, std::int64_t{2} << 20) << workers << " workers";
  }
  std::filesystem::remove(tokens);
}

}  // namespace
}  // namespace belay
