// Documents packed into one row do not see each other, exactly.

#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "belay/train/program_harness.h"

namespace belay {
namespace {

constexpr std::int64_t kFirst = 5;   // tokens of document A
constexpr std::int64_t kSecond = 3;  // tokens of document B
constexpr std::int64_t kVocab = 61;

ModelConfig tiny_model(Family family) {
  ModelConfig model = family_defaults(family);
  model.layers = 2;
  model.hidden = 32;
  model.heads = 4;
  model.ffn = 48;
  model.vocab = kVocab;
  model.seq_len = kFirst + kSecond;
  finish_config(model);
  return model;
}

// One row of 8 tokens: A, then B. Positions restart, no label crosses the boundary.
TestBatch packed_row(const std::vector<std::int32_t>& a, const std::vector<std::int32_t>& b) {
  TestBatch batch{1, kFirst + kSecond, a, {}, {0, 1, 2, 3, 4, 0, 1, 2}, {0, 0, 0, 0, 0, 5, 5, 5}};
  batch.tokens.insert(batch.tokens.end(), b.begin(), b.end());
  batch.targets = {a[1], a[2], a[3], a[4], -1, b[1], b[2], -1};
  return batch;
}

using Case = std::tuple<Family, const char*, DType>;

class DocumentsTest : public testing::TestWithParam<Case> {};

TEST_P(DocumentsTest, ReplacingOneLeavesTheOtherAsItWas) {
  const auto [family, device, dtype] = GetParam();
  ProgramHarness harness(tiny_model(family), device, dtype, 1, kFirst + kSecond);
  harness.initialise(3);
  const std::vector<std::int32_t> b = {40, 3, 17};
  const TestBatch one = packed_row({1, 2, 3, 4, 5}, b);
  const TestBatch other = packed_row({60, 50, 33, 21, 9}, b);
  EXPECT_EQ(one.counted(), 6);

  const std::vector<double> logits = harness.logits(one);
  const std::vector<double> changed = harness.logits(other);
  for (std::size_t i = static_cast<std::size_t>(kFirst * kVocab); i < logits.size(); ++i) {
    ASSERT_EQ(logits[i], changed[i]);
  }
  EXPECT_NE(logits, changed);

  // The loss of B inside the row equals that of B alone.
  TestBatch only_b = one;
  std::fill(only_b.targets.begin(), only_b.targets.begin() + kFirst, -1);
  TestBatch alone = TestBatch::of_rows(1, kFirst + kSecond, {40, 3, 17, 0, 0, 0, 0, 0});
  std::fill(alone.targets.begin() + 2, alone.targets.end(), -1);
  const double alone_loss = harness.loss_sum(alone, 1, false);
  EXPECT_NEAR(harness.loss_sum(only_b, 1, false), alone_loss,
              alone_loss * (dtype == DType::f32 ? 1e-6 : 1e-2));
}

INSTANTIATE_TEST_SUITE_P(Families, DocumentsTest,
                         testing::Combine(testing::Values(Family::gpt2, Family::llama,
                                                          Family::qwen2),
                                          testing::Values("cpu", "reference", "guard"),
                                          testing::Values(DType::f32, DType::bf16, DType::f16)),
                         [](const auto& info) {
                           return std::string(name_of(std::get<0>(info.param))) + "_" +
                                  std::get<1>(info.param) + "_" +
                                  std::string(name_of(std::get<2>(info.param)));
                         });

}  // namespace
}  // namespace belay
