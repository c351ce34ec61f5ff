#include <gtest/gtest.h>

#include <cmath>

#include "belay/device/cpu/attention/problem.h"
#include "belay/device/cpu/attention/run_candidate.h"

namespace belay::attention {
namespace {

// Tokens at scattered positions, heads inside wider rows.
struct RotaryProblem {
  std::vector<std::int32_t> positions;
  std::vector<float> table;
  Buffer buffer;
  RotaryArgs args;

  RotaryProblem(std::int64_t tokens, std::int64_t heads, std::int64_t head_dim, DType dtype,
                bool backward)
      : buffer(dtype, tokens, heads * head_dim + 3) {
    constexpr std::int64_t kPositions = 50;
    for (std::int64_t i = 0; i < tokens; ++i) {
      positions.push_back(static_cast<std::int32_t>((i * 17 + 3) % kPositions));
    }
    for (std::int64_t position = 0; position < kPositions; ++position) {
      for (std::int64_t d = 0; d < head_dim; ++d) {
        const std::int64_t pair = d % (head_dim / 2);
        const double angle =
            static_cast<double>(position) *
            std::pow(10000.0, -2.0 * static_cast<double>(pair) / static_cast<double>(head_dim));
        table.push_back(static_cast<float>(d < head_dim / 2 ? std::cos(angle) : std::sin(angle)));
      }
    }
    args.rows = {buffer.at(0), dtype, tokens, heads * head_dim, heads * head_dim + 3};
    args.head_dim = head_dim;
    args.positions = {positions.data(), DType::i32, {tokens}};
    args.table = {table.data(), DType::f32, {kPositions, head_dim}};
    args.backward = backward;
    fill_random(args.rows, 7, 0, 1.0F);
  }
};

class RotaryTargetTest : public ForEachTarget {};

TEST_P(RotaryTargetTest, EqualsTheReferenceAndLeavesTheGapsAlone) {
  for (const std::int64_t dim : {2, 6, 32, 40, 64, 128}) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      for (const bool backward : {false, true}) {
        SCOPED_TRACE(testing::Message() << dim << " " << name_of(dtype) << " " << backward);
        RotaryProblem fast(70, 3, dim, dtype, backward);
        RotaryProblem exact(70, 3, dim, dtype, backward);
        const std::vector<std::uint8_t> before = fast.buffer.bytes();
        run_accepted("simd", fast.args);
        KernelContext none;
        run_reference(exact.args, none);
        const Difference found =
            difference(fast.args.rows, exact.args.rows, magnitude(exact.args.rows));
        EXPECT_LT(found.largest, dtype == DType::bf16 ? 2e-2 : dtype == DType::f16 ? 3e-3 : 1e-6);
        const std::size_t size = size_of(dtype);
        for (std::size_t i = 0; i < before.size(); ++i) {
          const std::int64_t element = static_cast<std::int64_t>(i / size) - Buffer::kSpare;
          const bool inside = element >= 0 && element < 70 * fast.args.rows.stride &&
                              element % fast.args.rows.stride < fast.args.rows.width;
          if (!inside) {
            ASSERT_EQ(fast.buffer.bytes()[i], before[i]) << "element " << element;
          }
        }
      }
    }
  }
}

TEST_P(RotaryTargetTest, BackwardUndoesForward) {
  RotaryProblem there(33, 2, 64, DType::f32, false);
  const RotaryProblem untouched(33, 2, 64, DType::f32, false);
  run_accepted("simd", there.args);
  EXPECT_GT(difference(there.args.rows, untouched.args.rows, 1.0).largest, 0.1);
  there.args.backward = true;
  run_accepted("simd", there.args);
  EXPECT_LT(difference(there.args.rows, untouched.args.rows, 1.0).largest, 1e-5);
}

INSTANTIATE_TEST_SUITE_P(RotaryTest, RotaryTargetTest, testing::ValuesIn(targets()), target_name);

}  // namespace
}  // namespace belay::attention
