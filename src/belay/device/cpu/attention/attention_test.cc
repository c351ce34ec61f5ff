#include <fmt/format.h>
#include <gtest/gtest.h>

#include <hwy/targets.h>

#include "belay/base/parallel.h"
#include "belay/device/cpu/attention/problem.h"
#include "belay/device/cpu/kernels.h"

namespace belay::attention {
namespace {

template <class Args>
const Candidate<Args>& candidate_named(std::string_view name) {
  for (const auto& candidate : cpu_candidates(OpTag<Args>{})) {
    if (candidate.name == name) return candidate;
  }
  ADD_FAILURE() << "no candidate " << name;
  return cpu_candidates(OpTag<Args>{}).back();
}

// Runs a candidate in a workspace of exactly the size it asked for and checks what lies behind it.
template <class Args>
void run(const Candidate<Args>& candidate, const Args& args) {
  args.check();
  const std::size_t bytes = candidate.workspace == nullptr ? 0 : candidate.workspace(args);
  constexpr std::size_t kGuard = 256;
  std::vector<std::uint8_t> memory(bytes + 2 * kGuard, 0x5a);
  const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
  const std::size_t begin = (128 - address % 128) % 128;
  KernelContext context{reinterpret_cast<std::byte*>(memory.data() + begin), bytes};
  candidate.run(args, context);
  for (std::size_t i = begin + bytes; i < memory.size(); ++i) {
    ASSERT_EQ(memory[i], 0x5a) << "wrote behind the workspace";
  }
}

template <class Args>
void run_accepted(std::string_view name, const Args& args) {
  const auto& candidate = candidate_named<Args>(name);
  ASSERT_TRUE(candidate.declines == nullptr || candidate.declines(args) == nullptr);
  run(candidate, args);
}

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
  // bf16 keeps 8 bits: results are rounded once, and the backward pass sees a rounded dst.
  const bool narrow = dtype == DType::bf16;
  EXPECT_LT(found.mean, narrow ? 4e-3 : 1e-6) << what;
  EXPECT_LT(found.largest, narrow ? 6e-2 : 1e-5) << what;
}

void compare_with_reference(const ProblemSpec& spec, std::string_view kernel) {
  SCOPED_TRACE(describe(spec));
  const AttentionShape& s = spec.shape;
  Problem fast(spec, spec.dtype);
  Problem exact(spec, DType::f64);
  KernelContext none;
  run_accepted(kernel, fast.forward);
  run_reference(exact.forward, none);
  const std::int64_t width = fast.q_width;
  const Rows dst = columns(exact.forward.dst, 0, width);
  const Rows lse = all_rows(exact.forward.lse);
  expect_close("dst", columns(fast.forward.dst, 0, width), dst, spec.dtype, magnitude(dst));
  expect_close("lse", all_rows(fast.forward.lse), lse, DType::f32, 1.0 + magnitude(lse));
  expect_gaps_untouched(fast.dst_buffer, s.batch * s.q_len, width, width, spec.dtype);
  expect_gaps_untouched(fast.lse_buffer, s.batch * s.q_len, s.heads, s.heads, DType::f32);
  if (s.q_len != s.kv_len) return;

  run_accepted(kernel, fast.backward);
  run_reference(exact.backward, none);
  // d_q and d_k are differences of terms of about this size, and vanish where one key is visible.
  const double scale = magnitude(exact.backward.d_v);
  expect_close("d_q", fast.backward.d_q, exact.backward.d_q, spec.dtype, scale);
  expect_close("d_k", fast.backward.d_k, exact.backward.d_k, spec.dtype, scale);
  expect_close("d_v", fast.backward.d_v, exact.backward.d_v, spec.dtype, scale);
  expect_gaps_untouched(fast.gradients, s.batch * s.q_len, fast.stride, fast.stride - 3,
                        spec.dtype);
}

AttentionShape make_shape(std::int64_t batch, std::int64_t q_len, std::int64_t kv_len,
                          std::int64_t heads, std::int64_t kv_heads, std::int64_t head_dim) {
  return {batch,
          q_len,
          kv_len,
          heads,
          kv_heads,
          head_dim,
          1.0F / std::sqrt(static_cast<float>(head_dim))};
}

// The instruction sets to force: those of this processor that have kernels.
std::vector<std::int64_t> targets() {
  std::vector<std::int64_t> list = {HWY_STATIC_TARGET};
  for (const std::int64_t target : {HWY_AVX2, HWY_AVX3}) {
    if ((hwy::SupportedTargets() & target) != 0) list.push_back(target);
  }
  return list;
}

class ForEachTarget : public testing::TestWithParam<std::int64_t> {
 protected:
  void SetUp() override {
    hwy::SetSupportedTargetsForTest(GetParam() | HWY_STATIC_TARGET);
    hwy::GetChosenTarget().DeInit();
  }
  void TearDown() override {
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().DeInit();
  }
};

TEST_P(ForEachTarget, LengthsAroundTheTileSizes) {
  for (const std::int64_t length : {1, 2, 7, 15, 16, 17, 63, 64, 65, 81, 127, 128, 129, 130}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      compare_with_reference({make_shape(1, length, length, 2, 1, 32), dtype}, "flash");
    }
  }
}

TEST_P(ForEachTarget, HeadSizesAndGroups) {
  for (const std::int64_t dim : {1, 8, 33, 64, 80, 128, 256}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      compare_with_reference({make_shape(1, 70, 70, 4, 2, dim), dtype, Documents::random}, "flash");
    }
  }
}

TEST_P(ForEachTarget, DocumentsAndPadding) {
  for (const std::int64_t length : {40, 130, 200}) {
    for (std::uint32_t seed = 1; seed < 3; ++seed) {
      for (const Documents documents : {Documents::random, Documents::padded_tail}) {
        for (const DType dtype : {DType::f32, DType::bf16}) {
          compare_with_reference({make_shape(2, length, length, 3, 3, 16), dtype, documents, seed},
                                 "flash");
        }
      }
    }
  }
}

TEST_P(ForEachTarget, FewQueriesAtTheEndOfALongRow) {
  for (const std::int64_t q_len : {1, 2, 5, 33, 100}) {
    for (const std::int64_t kv_len : {100, 101, 257}) {
      for (const DType dtype : {DType::f32, DType::bf16}) {
        compare_with_reference({make_shape(2, q_len, kv_len, 4, 2, 64), dtype}, "flash");
        compare_with_reference({make_shape(1, q_len, kv_len, 4, 4, 40), dtype, Documents::random},
                               "flash");
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AttentionTest, ForEachTarget, testing::ValuesIn(targets()),
                         [](const auto& info) { return std::string(hwy::TargetName(info.param)); });

}  // namespace
}  // namespace belay::attention
