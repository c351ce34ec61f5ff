#include <fmt/format.h>
#include <gtest/gtest.h>

#include "belay/device/cpu/attention/problem.h"
#include "belay/device/cpu/attention/run_candidate.h"

namespace belay::attention {
namespace {

std::string describe(const ProblemSpec& spec) {
  const AttentionShape& s = spec.shape;
  return fmt::format("batch {} q_len {} kv_len {} heads {}/{} dim {} {} documents {}", s.batch,
                     s.q_len, s.kv_len, s.heads, s.kv_heads, s.head_dim, name_of(spec.dtype),
                     static_cast<int>(spec.documents));
}

Rows all_rows(const Tensor& tensor) {
  return columns(tensor.reshaped({1, tensor.elements()}), 0, tensor.elements());
}

// Bytes of a result buffer that belong to no operand must keep their pattern.
void expect_gaps_untouched(const Buffer& buffer, std::int64_t rows, std::int64_t stride,
                           std::int64_t width, DType dtype) {
  const std::size_t size = size_of(dtype);
  const std::size_t element_count = buffer.bytes().size() / size;
  for (std::size_t i = 0; i < element_count; ++i) {
    const std::int64_t element = static_cast<std::int64_t>(i) - Buffer::kSpare;
    const bool inside = element >= 0 && element < rows * stride && element % stride < width;
    if (inside) continue;
    for (std::size_t b = 0; b < size; ++b) {
      ASSERT_EQ(buffer.bytes()[i * size + b], 0xa5) << "element " << element << " was overwritten";
    }
  }
}

// `scale`: the magnitude that rounding errors are relative to.
void expect_close(const char* what, const Rows& values, const Rows& expected, DType dtype,
                  double scale) {
  const Difference found = difference(values, expected, scale);
  // bf16 keeps 8 bits, f16 11: results are rounded once, and the backward pass sees a rounded dst.
  const double coarser = dtype == DType::f16 ? 0.125 : 1.0;
  EXPECT_LT(found.mean, dtype == DType::f32 ? 1e-6 : 4e-3 * coarser) << what;
  EXPECT_LT(found.largest, dtype == DType::f32 ? 1e-5 : 6e-2 * coarser) << what;
}

void expect_equal(Problem& fast, const Problem& exact, std::string_view kernel) {
  const AttentionShape& s = fast.spec.shape;
  const DType dtype = fast.spec.dtype;
  run_accepted(kernel, fast.forward);
  const std::int64_t width = fast.q_width;
  const Rows dst = columns(exact.forward.dst, 0, width);
  const Rows lse = all_rows(exact.forward.lse);
  expect_close("dst", columns(fast.forward.dst, 0, width), dst, dtype, magnitude(dst));
  expect_close("lse", all_rows(fast.forward.lse), lse, DType::f32, 1.0 + magnitude(lse));
  expect_gaps_untouched(fast.dst_buffer, s.batch * s.q_len, width, width, dtype);
  expect_gaps_untouched(fast.lse_buffer, s.batch * s.q_len, s.heads, s.heads, DType::f32);
  if (s.q_len != s.kv_len || kernel == "decode") return;

  run_accepted(kernel, fast.backward);
  // d_q and d_k are differences of terms of about this size, and vanish where one key is visible.
  const double scale = magnitude(exact.backward.d_v);
  expect_close("d_q", fast.backward.d_q, exact.backward.d_q, dtype, scale);
  expect_close("d_k", fast.backward.d_k, exact.backward.d_k, dtype, scale);
  expect_close("d_v", fast.backward.d_v, exact.backward.d_v, dtype, scale);
  expect_gaps_untouched(fast.gradients, s.batch * s.q_len, fast.stride, fast.stride - 3, dtype);
}

// Every tuned kernel that takes the problem, in every storage type.
void compare_with_reference(const AttentionShape& shape, Documents documents = Documents::none,
                            std::uint32_t seed = 1) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const ProblemSpec spec{shape, dtype, documents, seed};
    Problem exact(spec, DType::f64);
    KernelContext none;
    run_reference(exact.forward, none);
    if (shape.q_len == shape.kv_len) run_reference(exact.backward, none);
    for (const std::string_view kernel : kernels_for(Problem(spec, dtype).forward)) {
      SCOPED_TRACE(fmt::format("{} {}", kernel, describe(spec)));
      Problem fast(spec, dtype);
      expect_equal(fast, exact, kernel);
    }
  }
}

class AttentionTargetTest : public ForEachTarget {};

TEST_P(AttentionTargetTest, LengthsAroundTheTileSizes) {
  for (const std::int64_t length : {1, 2, 15, 16, 17, 63, 64, 65, 81, 129}) {
    compare_with_reference(make_shape(1, length, length, 2, 1, 32));
  }
}

TEST_P(AttentionTargetTest, HeadSizesAndGroups) {
  for (const std::int64_t dim : {1, 8, 33, 64, 80, 128, 256}) {
    compare_with_reference(make_shape(1, 70, 70, 4, 2, dim), Documents::random);
  }
}

TEST_P(AttentionTargetTest, DocumentsAndPadding) {
  for (const std::int64_t length : {40, 130, 200}) {
    for (const Documents documents : {Documents::random, Documents::padded_tail}) {
      compare_with_reference(make_shape(2, length, length, 2, 2, 16), documents,
                             static_cast<std::uint32_t>(length));
    }
  }
}

TEST_P(AttentionTargetTest, FewQueriesAtTheEndOfALongRow) {
  for (const std::int64_t q_len : {1, 2, 33, 100}) {
    for (const std::int64_t kv_len : {100, 131}) {
      compare_with_reference(make_shape(2, q_len, kv_len, 4, 2, 64));
      compare_with_reference(make_shape(1, q_len, kv_len, 3, 1, 40), Documents::random);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AttentionTest, AttentionTargetTest, testing::ValuesIn(targets()),
                         target_name);

}  // namespace
}  // namespace belay::attention
