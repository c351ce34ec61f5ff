// How much ranks send each other where the state is sharded. Ranks are threads here.

#include <gtest/gtest.h>

#include <atomic>

#include "belay/train/parallel_task.h"

namespace belay {
namespace {

// Counts the bytes of 32- and 16-bit numbers that a rank sends: gradients and weights.
class CountingTransport final : public comm::Transport {
 public:
  explicit CountingTransport(comm::Transport& inner) : inner_(inner) {}
  [[nodiscard]] std::int64_t sent() const { return sent_; }

  [[nodiscard]] int rank() const override { return inner_.rank(); }
  [[nodiscard]] int size() const override { return inner_.size(); }
  [[nodiscard]] std::size_t post_bytes() const override { return inner_.post_bytes(); }
  [[nodiscard]] bool readable(const void* data, std::size_t bytes) const override {
    return inner_.readable(data, bytes);
  }
  void* allocate(std::size_t bytes) override { return inner_.allocate(bytes); }
  void deallocate(void* memory) override { inner_.deallocate(memory); }
  std::uint64_t send(int peer, int lane, const void* data, std::size_t bytes,
                     const comm::Signature& signature) override {
    const std::uint64_t number = inner_.send(peer, lane, data, bytes, signature);
    if (number > 0) count(bytes, signature);
    return number;
  }
  std::uint64_t post(int peer, int lane, const void* data, std::size_t bytes,
                     const comm::Signature& signature) override {
    const std::uint64_t number = inner_.post(peer, lane, data, bytes, signature);
    if (number > 0) count(bytes, signature);
    return number;
  }
  std::uint64_t used(int peer, int lane) override { return inner_.used(peer, lane); }
  bool peek(int peer, int lane, int nth, comm::Message& message) override {
    return inner_.peek(peer, lane, nth, message);
  }
  void release(int peer, int lane) override { inner_.release(peer, lane); }
  void enter(const comm::Signature& call) override { inner_.enter(call); }
  void finish(std::uint64_t sequence) override { inner_.finish(sequence); }
  void beat() override { inner_.beat(); }
  void leave(comm::RankStatus::State state) override { inner_.leave(state); }
  [[nodiscard]] std::optional<comm::RankStatus> status(int rank) const override {
    return inner_.status(rank);
  }
  bool raise(std::string_view reason, ExitCode code) override { return inner_.raise(reason, code); }
  [[nodiscard]] bool raised() override { return inner_.raised(); }
  [[nodiscard]] std::string reason() override { return inner_.reason(); }
  [[nodiscard]] ExitCode reason_code() override { return inner_.reason_code(); }

 private:
  void count(std::size_t bytes, const comm::Signature& signature) {
    if (signature.dtype != DType::f64) sent_ += static_cast<std::int64_t>(bytes);
  }

  comm::Transport& inner_;
  std::atomic<std::int64_t> sent_ = 0;
};

// Bytes that all ranks send in one step of `rounds` micro-batches each.
std::int64_t sent_in_a_step(const ModelConfig& model, int zero, int ranks, std::int64_t rounds) {
  comm::ThreadGroup group(ranks);
  std::atomic<std::int64_t> sent = 0;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      CountingTransport transport(group.transport(rank));
      comm::Communicator communicator(transport, {});
      testing::TinyRun run(model, 2, "cpu", DType::f32, {},
                           {static_cast<ZeroStage>(zero), rank, ranks, 2000});
      ShardedState sharded(*run.device, run.program->parameters(), communicator, {});
      run.program->set_sharded(&sharded);
      sharded.share_weights(run.program->lane());
      const OptimizerConfig optimizer = testing::plain_optimizer();
      Stepper stepper(*run.program, optimizer, 9, {rank, ranks, 2, rounds * ranks}, &communicator);
      const testing::TinyBatch batch(model, 2);
      std::int64_t before = 0;
      for (const std::int64_t step : {1, 2}) {
        before = transport.sent();
        stepper.run(step, step, [&] { return batch.micro(); });
      }
      sent += transport.sent() - before;
    });
  }
  for (std::thread& thread : threads) thread.join();
  return sent;
}

// Of n bytes of parameters every rank must send (p-1)/p n to reduce and scatter them, and as much
// to gather them.
TEST(ZeroVolumeTest, NoMoreIsSentThanMustBe) {
  for (const Family family : {Family::gpt2, Family::llama}) {
    ModelConfig model = testing::tiny_model(family);
    model.layers = 6;
    const ParameterTable table = make_parameter_table(model);
    const auto bytes = static_cast<double>(table.parameter_count()) * 4;
    for (const int ranks : {2, 3, 4}) {
      const auto of_all = [&](int zero, std::int64_t rounds) {
        // Of all ranks (p-1) n.
        return static_cast<double>(sent_in_a_step(model, zero, ranks, rounds)) /
               ((ranks - 1) * bytes);
      };
      for (const int zero : {1, 2}) EXPECT_NEAR(of_all(zero, 1), 2.0, 0.01) << ranks << " ranks";
      EXPECT_NEAR(of_all(1, 3), 2.0, 0.01);
      EXPECT_NEAR(of_all(2, 3), 4.0, 0.02);
      // Weights twice, but those of the ends and of the last layer once.
      EXPECT_LT(of_all(3, 1), 3.0);
      EXPECT_GT(of_all(3, 1), 2.0);
      EXPECT_LT(of_all(3, 3), 9.0);
    }
  }
}

}  // namespace
}  // namespace belay
