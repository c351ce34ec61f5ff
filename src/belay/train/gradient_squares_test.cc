// The norm of every gradient is taken once, when the last addition to it has been launched.

#include <gtest/gtest.h>

#include <map>

#include "belay/train/program_harness.h"

namespace belay {
namespace {

constexpr std::int64_t kRows = 4;
constexpr std::int64_t kSeq = 6;

// Counts the sums of squares.
class SquaresCounter : public OpRecorder {
 public:
  void record(const OpCall& call, std::chrono::steady_clock::time_point,
              std::chrono::steady_clock::time_point) override {
    if (call.op == SumOfSquaresArgs::kName) ++counts_[call.as<SumOfSquaresArgs>().dst.data];
  }
  [[nodiscard]] const std::map<const void*, int>& counts() const { return counts_; }

 private:
  std::map<const void*, int> counts_;
};

class GradientSquaresTest : public testing::TestWithParam<std::tuple<Family, bool>> {};

TEST_P(GradientSquaresTest, OnceForEveryParameterAndOfTheWholeGradient) {
  const auto [family, tied] = GetParam();
  ModelConfig model = family_defaults(family);
  model.layers = 2;
  model.hidden = 32;
  model.heads = 4;
  model.ffn = 48;
  model.vocab = 61;
  model.seq_len = kSeq;
  model.tie_embeddings = tied;
  finish_config(model);
  ProgramHarness harness(model, "cpu", DType::f32, 2, kSeq);
  harness.initialise(5);
  std::vector<std::int32_t> tokens;
  for (std::int32_t i = 0; i < kRows * kSeq; ++i) tokens.push_back(i * 17 % 61);
  SquaresCounter counter;
  harness.lane().set_recorder(&counter);
  // Two micro-batches: only the second one's look is of the whole gradient.
  harness.loss_sum(TestBatch::of_rows(kRows, kSeq, tokens), 2, true);
  harness.lane().set_recorder(nullptr);

  const std::span<const double> squares = harness.program().read_gradient_squares(harness.lane());
  ASSERT_EQ(static_cast<int>(squares.size()), harness.table().size());
  EXPECT_EQ(counter.counts().size(), squares.size());
  for (const auto& [sum, count] : counter.counts()) EXPECT_EQ(count, 1);
  for (int index = 0; index < harness.table().size(); ++index) {
    double expected = 0;
    for (const float value : harness.read(harness.parameters().grad(index))) {
      expected += static_cast<double>(value) * static_cast<double>(value);
    }
    EXPECT_GT(expected, 0) << harness.table()[index].name;
    EXPECT_NEAR(squares[static_cast<std::size_t>(index)], expected, 1e-12 * expected)
        << harness.table()[index].name;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, GradientSquaresTest,
    testing::Combine(testing::Values(Family::gpt2, Family::llama, Family::qwen2), testing::Bool()));

}  // namespace
}  // namespace belay
