// What no query sees is not even read into a product: NaN there leaves every result as it was.

#include <gtest/gtest.h>

#include "belay/device/cpu/attention/problem.h"
#include "belay/device/cpu/attention/run_candidate.h"

namespace belay::attention {
namespace {

void fill(const Rows& rows, std::int64_t first, std::int64_t end, double value) {
  for (std::int64_t row = first; row < end; ++row) {
    for (std::int64_t column = 0; column < rows.width; ++column) store(rows, row, column, value);
  }
}

std::vector<double> values(const Rows& rows, std::int64_t first, std::int64_t end) {
  std::vector<double> list;
  for (std::int64_t row = first; row < end; ++row) {
    for (std::int64_t column = 0; column < rows.width; ++column) {
      list.push_back(load(rows, row, column));
    }
  }
  return list;
}

Rows whole(const Tensor& tensor) {
  return columns(tensor, 0, tensor.dim(1));
}

class AttentionPoison : public ForEachTarget {};

// Two documents of whole tiles in a row: one of NaN in all its operands, the other as it was.
TEST_P(AttentionPoison, ADocumentOfNanLeavesTheOtherAsItWas) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const auto& [a_len, b_len] : {std::pair{64, 64}, {128, 70}, {192, 1}}) {
      const ProblemSpec spec{make_shape(1, a_len + b_len, a_len + b_len, 4, 2, 24), dtype,
                             Documents::padded_tail};
      const auto prepare = [&, a = a_len](Problem& problem) {
        for (std::size_t i = 0; i < problem.documents.size(); ++i) {
          problem.documents[i] = static_cast<std::int64_t>(i) < a ? 0 : static_cast<int>(a);
        }
      };
      Problem clean(spec, dtype);
      prepare(clean);
      for (const std::string_view kernel : kernels_for(clean.forward)) {
        SCOPED_TRACE(testing::Message() << a_len << " + " << b_len << " " << kernel);
        run_accepted(kernel, clean.forward);
        run_accepted(kernel, clean.backward);
        for (const bool first : {false, true}) {
          Problem poisoned(spec, dtype);
          prepare(poisoned);
          const auto [nan_from, nan_to] =
              first ? std::pair{0, a_len} : std::pair{a_len, a_len + b_len};
          const auto [from, to] = first ? std::pair{a_len, a_len + b_len} : std::pair{0, a_len};
          for (const Rows& rows : {poisoned.forward.q, poisoned.forward.k, poisoned.forward.v,
                                   whole(poisoned.backward.d_dst)}) {
            fill(rows, nan_from, nan_to, std::nan(""));
          }
          run_accepted(kernel, poisoned.forward);
          run_accepted(kernel, poisoned.backward);
          EXPECT_EQ(values(whole(poisoned.forward.dst), from, to),
                    values(whole(clean.forward.dst), from, to));
          EXPECT_EQ(values(poisoned.backward.d_q, from, to), values(clean.backward.d_q, from, to));
          EXPECT_EQ(values(poisoned.backward.d_k, from, to), values(clean.backward.d_k, from, to));
          EXPECT_EQ(values(poisoned.backward.d_v, from, to), values(clean.backward.d_v, from, to));
          EXPECT_TRUE(std::isnan(load(whole(poisoned.forward.dst), nan_from, 0)));
        }
      }
    }
  }
}

// Keys behind the tile of a query are never read.
TEST_P(AttentionPoison, TheFutureIsNotRead) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const ProblemSpec spec{make_shape(1, 256, 256, 2, 1, 32), dtype};
    Problem clean(spec, dtype);
    for (const std::string_view kernel : kernels_for(clean.forward)) {
      run_accepted(kernel, clean.forward);
      Problem poisoned(spec, dtype);
      fill(poisoned.forward.k, 128, 256, std::nan(""));
      fill(poisoned.forward.v, 128, 256, std::nan(""));
      run_accepted(kernel, poisoned.forward);
      EXPECT_EQ(values(whole(poisoned.forward.dst), 0, 128),
                values(whole(clean.forward.dst), 0, 128))
          << kernel;
      EXPECT_TRUE(std::isnan(load(whole(poisoned.forward.dst), 128, 0)));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, AttentionPoison, testing::ValuesIn(targets()), target_name);

}  // namespace
}  // namespace belay::attention
