// Keys and values in blocks of a pool give the bits that they give row after row.

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "belay/device/cpu/attention/problem.h"
#include "belay/device/cpu/attention/run_candidate.h"

namespace belay::attention {
namespace {

// The keys and values of a problem, moved into blocks of a pool in an order of their own.
class Pool {
 public:
  Pool(const AttentionForwardArgs& args, std::int64_t block_tokens)
      : blocks_((args.shape.kv_len + block_tokens - 1) / block_tokens),
        width_(args.k.width),
        rows_((args.shape.batch * blocks_ + 1) * block_tokens),
        buffer_(args.k.dtype, rows_, 2 * width_) {
    const AttentionShape& s = args.shape;
    for (std::int64_t i = 0; i < s.batch * blocks_; ++i) {
      // 37 is prime to every count of blocks here, so no block comes twice.
      table_.push_back(static_cast<std::int32_t>(1 + i * 37 % (s.batch * blocks_)));
    }
    paged_ = args;
    paged_.k = {buffer_.at(0), args.k.dtype, rows_, width_, 2 * width_};
    paged_.v = {buffer_.at(width_), args.v.dtype, rows_, width_, 2 * width_};
    for (std::int64_t row = 0; row < rows_; ++row) {
      for (std::int64_t d = 0; d < width_; ++d) {  // what nobody may read
        store(paged_.k, row, d, std::nan(""));
        store(paged_.v, row, d, std::nan(""));
      }
    }
    for (std::int64_t key = 0; key < s.batch * s.kv_len; ++key) {
      const auto in_row = key % s.kv_len;
      const auto at = static_cast<std::size_t>(key / s.kv_len * blocks_ + in_row / block_tokens);
      const std::int64_t row = table_[at] * block_tokens + in_row % block_tokens;
      for (std::int64_t d = 0; d < width_; ++d) {
        store(paged_.k, row, d, load(args.k, key, d));
        store(paged_.v, row, d, load(args.v, key, d));
      }
    }
    paged_.block_table = {table_.data(), DType::i32, {s.batch, blocks_}};
    paged_.block_tokens = block_tokens;
  }

  [[nodiscard]] const AttentionForwardArgs& args() const { return paged_; }

 private:
  std::int64_t blocks_;
  std::int64_t width_;
  std::int64_t rows_;
  Buffer buffer_;
  std::vector<std::int32_t> table_;
  AttentionForwardArgs paged_;
};

std::vector<AttentionShape> shapes() {
  return {make_shape(2, 1, 1, 2, 1, 8),     make_shape(3, 1, 77, 6, 2, 24),
          make_shape(1, 1, 129, 4, 4, 64),  make_shape(2, 33, 33, 3, 1, 20),
          make_shape(1, 70, 135, 2, 2, 64), make_shape(2, 5, 101, 4, 2, 40)};
}

class PagedAttention : public ForEachTarget {};

TEST_P(PagedAttention, HasTheBitsOfContiguousKeys) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const AttentionShape& shape : shapes()) {
      for (const Documents documents : {Documents::none, Documents::random}) {
        Problem problem({shape, dtype, documents, 3}, dtype);
        for (const std::int64_t block_tokens : {1, 7, 16, 64, 200}) {
          const Pool pool(problem.forward, block_tokens);
          for (const auto& candidate : cpu_candidates(OpTag<AttentionForwardArgs>{})) {
            if (candidate.declines != nullptr && candidate.declines(pool.args()) != nullptr) {
              continue;
            }
            SCOPED_TRACE(std::string(candidate.name) + " " + std::string(name_of(dtype)) +
                         " blocks of " + std::to_string(block_tokens));
            run_candidate(candidate, problem.forward);
            const auto dst = problem.dst_buffer.bytes();
            const auto lse = problem.lse_buffer.bytes();
            store(problem.forward.dst, 0, 99);
            run_candidate(candidate, pool.args());
            ASSERT_EQ(problem.dst_buffer.bytes(), dst);
            ASSERT_EQ(problem.lse_buffer.bytes(), lse);
          }
        }
      }
    }
  }
}

// Batch rows of different lengths: each has the bits of that row alone.
TEST_P(PagedAttention, RowsOfDifferentLengthsAreRowsOnTheirOwn) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const std::int64_t q_len : {1, 9, 66}) {
      const AttentionShape shape = make_shape(4, q_len, 140, 4, 2, 24);
      Problem problem({shape, dtype, Documents::none, 5}, dtype);
      const Pool pool(problem.forward, 16);
      std::vector<std::int32_t> lengths{140, 66, 97, 128};
      AttentionForwardArgs together = pool.args();
      together.kv_lengths = {lengths.data(), DType::i32, {shape.batch}};
      for (const auto& candidate : cpu_candidates(OpTag<AttentionForwardArgs>{})) {
        if (candidate.declines != nullptr && candidate.declines(together) != nullptr) continue;
        run_candidate(candidate, together);
        const auto expected = problem.dst_buffer.bytes();
        const auto expected_lse = problem.lse_buffer.bytes();
        store(problem.forward.dst, 0, 99);
        for (std::int64_t batch = 0; batch < shape.batch; ++batch) {
          AttentionForwardArgs alone = problem.forward;
          const std::int64_t length = lengths[static_cast<std::size_t>(batch)];
          alone.shape.batch = 1;
          alone.shape.kv_len = length;
          const auto cut = [&](const Rows& rows, std::int64_t first, std::int64_t count) {
            auto* data = static_cast<std::byte*>(rows.data) +
                         static_cast<std::size_t>(first * rows.stride) * size_of(rows.dtype);
            return Rows{data, rows.dtype, count, rows.width, rows.stride};
          };
          alone.q = cut(alone.q, batch * q_len, q_len);
          alone.k = cut(alone.k, batch * shape.kv_len, length);
          alone.v = cut(alone.v, batch * shape.kv_len, length);
          alone.dst = alone.dst.rows(batch * q_len, (batch + 1) * q_len);
          alone.lse = alone.lse.rows(batch, batch + 1);
          run_candidate(candidate, alone);
        }
        EXPECT_EQ(problem.dst_buffer.bytes(), expected) << candidate.name << " " << q_len;
        EXPECT_EQ(problem.lse_buffer.bytes(), expected_lse) << candidate.name << " " << q_len;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, PagedAttention, testing::ValuesIn(targets()), target_name);

}  // namespace
}  // namespace belay::attention
