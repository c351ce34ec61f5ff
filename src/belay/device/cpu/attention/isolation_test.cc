// What must hold to the last bit: the same bits from any number of threads, documents that do not
// see each other, padding that adds nothing.

#include <gtest/gtest.h>

#include <functional>

#include "belay/base/parallel.h"
#include "belay/device/cpu/attention/problem.h"
#include "belay/device/cpu/attention/run_candidate.h"

namespace belay::attention {
namespace {

class ThreadCount {
 public:
  explicit ThreadCount(int threads) : before_(thread_count()) { set_thread_count(threads); }
  ~ThreadCount() { set_thread_count(before_); }
  ThreadCount(const ThreadCount&) = delete;
  ThreadCount& operator=(const ThreadCount&) = delete;

 private:
  int before_;
};

struct Variant {
  DType dtype;
  std::string_view kernel;
};

// Every tuned kernel of this processor with every storage type that it takes.
std::vector<Variant> variants() {
  std::vector<Variant> list;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Problem probe({make_shape(1, 2, 2, 1, 1, 8), dtype}, dtype);
    for (const std::string_view kernel : kernels_for(probe.forward)) {
      list.push_back({dtype, kernel});
    }
  }
  return list;
}

void run_both(std::string_view kernel, Problem& problem) {
  run_accepted(kernel, problem.forward);
  run_accepted(kernel, problem.backward);
}

TEST(AttentionIsolationTest, SameBitsAgainAndFromAnyNumberOfThreads) {
  for (const auto& [dtype, kernel] : variants()) {
    for (const std::int64_t heads : {2, 6}) {
      const ProblemSpec spec{make_shape(heads, 150, 150, heads, 2, 48), dtype, Documents::random};
      Problem first(spec, dtype);
      {
        const ThreadCount one(1);
        run_both(kernel, first);
      }
      for (const int threads : {1, 2, 3}) {
        const ThreadCount several(threads);
        Problem again(spec, dtype);
        run_both(kernel, again);
        EXPECT_EQ(again.dst_buffer.bytes(), first.dst_buffer.bytes()) << threads;
        EXPECT_EQ(again.lse_buffer.bytes(), first.lse_buffer.bytes()) << threads;
        EXPECT_EQ(again.gradients.bytes(), first.gradients.bytes()) << threads;
      }
    }
  }
}

// Elements of `rows` in [first, first + count), as doubles.
std::vector<double> values(const Rows& rows, std::int64_t first, std::int64_t count) {
  std::vector<double> list;
  for (std::int64_t row = first; row < first + count; ++row) {
    for (std::int64_t column = 0; column < rows.width; ++column) {
      list.push_back(load(rows, row, column));
    }
  }
  return list;
}

Rows whole(const Tensor& tensor) {
  return columns(tensor, 0, tensor.dim(1));
}

Rows part(const Rows& rows, std::int64_t first, std::int64_t count) {
  return {static_cast<std::byte*>(rows.data) +
              static_cast<std::size_t>(first * rows.stride) * size_of(rows.dtype),
          rows.dtype, count, rows.width, rows.stride};
}

// Document A of `a_len` tokens, then B of `b_len`, in one row.
struct TwoDocuments {
  std::int64_t a_len, b_len;
  Problem problem;

  TwoDocuments(std::int64_t a, std::int64_t b, DType dtype)
      : a_len(a),
        b_len(b),
        problem({make_shape(1, a + b, a + b, 4, 2, 32), dtype, Documents::padded_tail}, dtype) {
    for (std::int64_t i = 0; i < a + b; ++i) {
      problem.documents[static_cast<std::size_t>(i)] = i < a ? 0 : static_cast<std::int32_t>(a);
    }
  }
  [[nodiscard]] std::vector<std::vector<double>> results_of_b() const {
    return {values(whole(problem.forward.dst), a_len, b_len),
            values(problem.backward.d_q, a_len, b_len), values(problem.backward.d_k, a_len, b_len),
            values(problem.backward.d_v, a_len, b_len)};
  }
};

constexpr std::int64_t kLengths[][2] = {{5, 3}, {70, 60}, {64, 64}, {100, 200}, {1, 90}};

TEST(AttentionIsolationTest, ReplacingOneDocumentChangesTheOtherByExactlyNothing) {
  for (const auto& [a_len, b_len] : kLengths) {
    for (const auto& [dtype, kernel] : variants()) {
      SCOPED_TRACE(testing::Message()
                   << a_len << " + " << b_len << " " << kernel << name_of(dtype));
      TwoDocuments before(a_len, b_len, dtype);
      TwoDocuments after(a_len, b_len, dtype);
      for (const Rows& rows : {after.problem.forward.q, after.problem.forward.k,
                               after.problem.forward.v, whole(after.problem.backward.d_dst)}) {
        fill_random(part(rows, 0, a_len), 99, 5, 30.0F);
      }
      run_both(kernel, before.problem);
      run_both(kernel, after.problem);
      EXPECT_EQ(before.results_of_b(), after.results_of_b());
      EXPECT_NE(values(whole(before.problem.forward.dst), 0, a_len),
                values(whole(after.problem.forward.dst), 0, a_len));
    }
  }
}

void copy_rows(const Rows& from, const Rows& to) {
  for (std::int64_t row = 0; row < to.rows; ++row) {
    for (std::int64_t column = 0; column < to.width; ++column) {
      store(to, row, column, load(from, row, column));
    }
  }
}

TEST(AttentionIsolationTest, ADocumentInARowGivesWhatItGivesAlone) {
  for (const auto& [a_len, b_len] : kLengths) {
    SCOPED_TRACE(testing::Message() << a_len << " + " << b_len);
    TwoDocuments packed(a_len, b_len, DType::f32);
    Problem alone({make_shape(1, b_len, b_len, 4, 2, 32)}, DType::f32);
    const AttentionForwardArgs& forward = packed.problem.forward;
    copy_rows(part(forward.q, a_len, b_len), alone.forward.q);
    copy_rows(part(forward.k, a_len, b_len), alone.forward.k);
    copy_rows(part(forward.v, a_len, b_len), alone.forward.v);
    copy_rows(part(whole(packed.problem.backward.d_dst), a_len, b_len),
              whole(alone.backward.d_dst));
    run_both("flash", packed.problem);
    run_both("flash", alone);
    const auto in_row = packed.results_of_b();
    const std::vector<double> by_itself[] = {
        values(whole(alone.forward.dst), 0, b_len), values(alone.backward.d_q, 0, b_len),
        values(alone.backward.d_k, 0, b_len), values(alone.backward.d_v, 0, b_len)};
    for (std::size_t i = 0; i < in_row.size(); ++i) {
      for (std::size_t j = 0; j < in_row[i].size(); ++j) {
        ASSERT_NEAR(in_row[i][j], by_itself[i][j], 2e-5) << "result " << i;
      }
    }
  }
}

TEST(AttentionIsolationTest, RowsWithoutGradientAddExactlyNothing) {
  for (const auto& [dtype, kernel] : variants()) {
    TwoDocuments packed(90, 40, dtype);
    Problem& problem = packed.problem;
    for (std::int64_t i = 90; i < 130; ++i) {  // B is padding: each token sees itself
      problem.documents[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(i);
    }
    const Rows padding = part(whole(problem.backward.d_dst), 90, 40);
    for (std::int64_t row = 0; row < padding.rows; ++row) {
      for (std::int64_t column = 0; column < padding.width; ++column) {
        store(padding, row, column, 0);
      }
    }
    run_both(kernel, problem);
    const auto results = packed.results_of_b();
    EXPECT_EQ(results[0].size(), 40U * 4U * 32U);
    for (std::size_t i = 1; i < results.size(); ++i) {
      for (const double value : results[i]) ASSERT_EQ(value, 0.0) << "result " << i;
    }
  }
}

TEST(AttentionIsolationTest, HugeScoresStayFiniteAndNanShows) {
  for (const auto& [dtype, kernel] : variants()) {
    const ProblemSpec spec{make_shape(1, 100, 100, 1, 1, 16), dtype};
    Problem huge(spec, dtype);
    fill_random(huge.forward.q, 3, 0, 1e4F);
    fill_random(huge.forward.k, 3, 1, 1e4F);
    run_both(kernel, huge);
    for (const Rows& rows : {whole(huge.forward.dst), huge.backward.d_q, huge.backward.d_k}) {
      for (const double value : values(rows, 0, 100)) ASSERT_TRUE(std::isfinite(value));
    }

    Problem poisoned(spec, dtype);
    store(poisoned.forward.k, 50, 3, std::nan(""));
    run_accepted(kernel, poisoned.forward);
    const Rows dst = whole(poisoned.forward.dst);
    for (const double value : values(dst, 0, 50)) ASSERT_TRUE(std::isfinite(value));
    for (const double value : values(dst, 50, 50)) ASSERT_TRUE(std::isnan(value));
  }
}

// Central differences of sum(dst * d_dst) in double.
TEST(AttentionIsolationTest, ReferenceGradientsAreFiniteDifferences) {
  const ProblemSpec spec{make_shape(1, 7, 7, 4, 2, 3), DType::f64, Documents::random, 5};
  Problem problem(spec, DType::f64);
  KernelContext none;
  run_reference(problem.backward, none);
  const auto loss = [&] {
    run_reference(problem.forward, none);
    double sum = 0;
    for (std::int64_t i = 0; i < problem.forward.dst.elements(); ++i) {
      sum += load(problem.forward.dst, i) * load(problem.backward.d_dst, i);
    }
    return sum;
  };
  const std::pair<Rows, Rows> operands[] = {{problem.backward.q, problem.backward.d_q},
                                            {problem.backward.k, problem.backward.d_k},
                                            {problem.backward.v, problem.backward.d_v}};
  constexpr double kShift = 1e-5;
  for (const auto& [operand, gradient] : operands) {
    for (std::int64_t row = 0; row < operand.rows; ++row) {
      for (std::int64_t column = 0; column < operand.width; ++column) {
        const double value = load(operand, row, column);
        store(operand, row, column, value + kShift);
        const double above = loss();
        store(operand, row, column, value - kShift);
        const double below = loss();
        store(operand, row, column, value);
        ASSERT_NEAR(load(gradient, row, column), (above - below) / (2 * kShift), 1e-8);
      }
    }
  }
}

TEST(AttentionIsolationTest, UnsupportedCallsAreDeclinedWithAReason) {
  const auto& candidate = candidate_named<AttentionForwardArgs>("flash");
  Problem wide({make_shape(1, 2, 2, 1, 1, 300)}, DType::f32);
  EXPECT_STREQ(candidate.declines(wide.forward), "head_dim above 256");
  Problem doubles({make_shape(1, 2, 2, 1, 1, 8), DType::f64}, DType::f64);
  EXPECT_STREQ(candidate.declines(doubles.forward), "storage is not f32, bf16 or f16");
  Problem negative({make_shape(1, 2, 2, 1, 1, 8)}, DType::f32);
  negative.forward.shape.scale = -1.0F;
  EXPECT_STREQ(candidate.declines(negative.forward), "scale is not positive");
}

}  // namespace
}  // namespace belay::attention
