// Rows of up to 32768 tokens: memory grows with their length, not with its square, and results are
// those of the definition.

#include <gtest/gtest.h>

#include "belay/base/parallel.h"
#include "belay/device/cpu/attention/kernels.h"
#include "belay/device/cpu/attention/problem.h"
#include "belay/device/cpu/attention/run_candidate.h"

namespace belay::attention {
namespace {

// Bytes of workspace that do not depend on the length of a row: the tiles of each thread.
std::size_t tiles_bytes(std::string_view kernel, std::int64_t head_dim) {
  const std::int64_t floats = kernel == "flash_bf16" ? BackwardPairScratch::floats(head_dim)
                                                     : BackwardScratch::floats(head_dim);
  return static_cast<std::size_t>(thread_count() * floats) * sizeof(float);
}

TEST(AttentionLongRowsTest, WorkspaceGrowsWithTheLengthOfARow) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const std::int64_t heads : {1, 12}) {
      std::size_t forward_before = 0;
      std::size_t backward_before = 0;
      for (const std::int64_t seq : {4096, 8192, 16384, 32768}) {
        AttentionForwardArgs forward;
        forward.shape = make_shape(1, seq, seq, heads, heads, 64);
        forward.q.dtype = forward.k.dtype = forward.v.dtype = forward.dst.dtype = dtype;
        AttentionBackwardArgs backward;
        backward.shape = forward.shape;
        for (Rows* rows :
             {&backward.q, &backward.k, &backward.v, &backward.d_q, &backward.d_k, &backward.d_v}) {
          rows->dtype = dtype;
        }
        backward.dst.dtype = backward.d_dst.dtype = dtype;
        for (const std::string_view kernel : kernels_for(forward)) {
          if (kernel == "decode") continue;
          const auto& ahead = candidate_named<AttentionForwardArgs>(kernel);
          const auto& back = candidate_named<AttentionBackwardArgs>(kernel);
          const std::size_t sums = back.workspace(backward) - tiles_bytes(kernel, 64);
          if (seq > 4096) {
            EXPECT_EQ(ahead.workspace(forward), forward_before) << kernel;
            EXPECT_EQ(sums, 2 * backward_before) << kernel;
          }
          forward_before = ahead.workspace(forward);
          backward_before = sums;
          break;  // the one that runs
        }
      }
      EXPECT_GT(backward_before, 0U);
    }
  }
}

// One row of results by the definition, in double, from the operands and the log-sum-exps.
class Definition {
 public:
  explicit Definition(const Problem& problem) : back_(problem.backward) {}

  [[nodiscard]] double lse(std::int64_t query) const {
    double sum = 0;
    for (std::int64_t key = 0; key <= query; ++key) sum += std::exp(score(query, key));
    return std::log(sum);
  }
  [[nodiscard]] double dst(std::int64_t query, std::int64_t d) const {
    double sum = 0;
    for (std::int64_t key = 0; key <= query; ++key) {
      sum += probability(query, key) * load(back_.v, key, d);
    }
    return sum;
  }
  [[nodiscard]] double d_q(std::int64_t query, std::int64_t d) const {
    double sum = 0;
    for (std::int64_t key = 0; key <= query; ++key) {
      sum += score_gradient(query, key) * load(back_.k, key, d);
    }
    return sum;
  }
  [[nodiscard]] double d_k(std::int64_t key, std::int64_t d) const {
    double sum = 0;
    for (std::int64_t query = key; query < back_.shape.q_len; ++query) {
      sum += score_gradient(query, key) * load(back_.q, query, d);
    }
    return sum;
  }
  [[nodiscard]] double d_v(std::int64_t key, std::int64_t d) const {
    double sum = 0;
    for (std::int64_t query = key; query < back_.shape.q_len; ++query) {
      sum += probability(query, key) * load(back_.d_dst, query * back_.shape.head_dim + d);
    }
    return sum;
  }

 private:
  [[nodiscard]] double score(std::int64_t query, std::int64_t key) const {
    double sum = 0;
    for (std::int64_t d = 0; d < back_.shape.head_dim; ++d) {
      sum += load(back_.q, query, d) * load(back_.k, key, d);
    }
    return sum * static_cast<double>(back_.shape.scale);
  }
  [[nodiscard]] double probability(std::int64_t query, std::int64_t key) const {
    return std::exp(score(query, key) - load(back_.lse, query));
  }
  [[nodiscard]] double score_gradient(std::int64_t query, std::int64_t key) const {
    const std::int64_t dim = back_.shape.head_dim;
    double d_p = 0;
    double delta = 0;
    for (std::int64_t d = 0; d < dim; ++d) {
      const double gradient = load(back_.d_dst, query * dim + d);
      d_p += gradient * load(back_.v, key, d);
      delta += gradient * load(back_.dst, query * dim + d);
    }
    return probability(query, key) * (d_p - delta) * static_cast<double>(back_.shape.scale);
  }

  const AttentionBackwardArgs& back_;
};

TEST(AttentionLongRowsTest, At32768TokensRowsAreThoseOfTheDefinition) {
  constexpr std::int64_t kSeq = 32768;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Problem problem({make_shape(1, kSeq, kSeq, 1, 1, 64), dtype}, dtype);
    const std::string_view kernel = kernels_for(problem.forward).front();
    run_accepted(kernel, problem.forward);
    run_accepted(kernel, problem.backward);
    const Definition definition(problem);
    const AttentionBackwardArgs& back = problem.backward;
    // Of the largest result of its kind, which first rows have: their probabilities are large.
    const double tolerance = dtype == DType::f32 ? 2e-5 : 2e-2;
    const Rows dst = columns(problem.forward.dst, 0, 64);
    for (const std::int64_t row : {0L, 63L, 64L, 1000L, 16383L, 20001L, kSeq - 1}) {
      SCOPED_TRACE(testing::Message() << kernel << " row " << row);
      EXPECT_NEAR(load(problem.forward.lse, row), definition.lse(row), 1e-4);
      double largest[4] = {};
      double worst[4] = {};
      for (const std::int64_t d : {0L, 7L, 31L, 63L}) {
        const std::pair<double, double> pairs[4] = {
            {load(dst, row, d), definition.dst(row, d)},
            {load(back.d_q, row, d), definition.d_q(row, d)},
            {load(back.d_k, row, d), definition.d_k(row, d)},
            {load(back.d_v, row, d), definition.d_v(row, d)}};
        for (std::size_t i = 0; i < 4; ++i) {
          largest[i] = std::max(largest[i], std::abs(pairs[i].second));
          worst[i] = std::max(worst[i], std::abs(pairs[i].first - pairs[i].second));
        }
      }
      for (std::size_t i = 0; i < 4; ++i) {
        EXPECT_LE(worst[i], tolerance * std::max(largest[i], 1e-3)) << "result " << i;
      }
    }
  }
}

}  // namespace
}  // namespace belay::attention
