#include "belay/comm/reduce.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "belay/comm/element_values.h"

namespace belay::comm {
namespace {

constexpr DType kTypes[] = {DType::f32, DType::f64, DType::bf16, DType::f16, DType::i32};
constexpr ReduceOp kOps[] = {ReduceOp::sum, ReduceOp::prod, ReduceOp::min, ReduceOp::max,
                             ReduceOp::avg};

double expected(ReduceOp op, double a, double b) {
  switch (op) {
    case ReduceOp::prod:
      return a * b;
    case ReduceOp::min:
      return std::min(a, b);
    case ReduceOp::max:
      return std::max(a, b);
    default:
      return a + b;
  }
}

// Integers whose results every type holds exactly.
double value_of(std::int64_t i, int part) {
  return static_cast<double>((i * 7 + part * 3) % 11 - 5);
}

TEST(Reduce, PairsOfAllTypesAndWidths) {
  for (const DType dtype : kTypes) {
    for (const ReduceOp op : kOps) {
      for (const std::int64_t count : {0, 1, 3, 15, 16, 17, 100, 1027}) {
        for (int widths = 0; widths < 8; ++widths) {
          const bool first_wide = (widths & 1) != 0;
          const bool second_wide = (widths & 2) != 0;
          const bool complete = (widths & 4) != 0;
          const DType wide = accumulation_type(dtype);
          const DType first_type = first_wide ? wide : dtype;
          const DType second_type = second_wide ? wide : dtype;
          const DType dst_type = complete ? dtype : wide;
          std::vector<double> first(1032);
          std::vector<double> second(1032);
          std::vector<double> dst(1032);
          for (std::int64_t i = 0; i < count; ++i) {
            set(first.data(), first_type, i, value_of(i, 0));
            set(second.data(), second_type, i, value_of(i, 1));
          }
          set(dst.data(), dst_type, count, 77);  // a guard
          const Arithmetic arithmetic{dtype, op, 2};
          reduce_pair(arithmetic, {first.data(), first_wide}, {second.data(), second_wide},
                      {dst.data(), complete}, count);
          for (std::int64_t i = 0; i < count; ++i) {
            double want = expected(op, value_of(i, 0), value_of(i, 1));
            if (op == ReduceOp::avg && complete) {
              want = dtype == DType::i32 ? std::trunc(want / 2) : want / 2;
            }
            ASSERT_EQ(get(dst.data(), dst_type, i), want)
                << belay::name_of(dtype) << " " << name_of(op) << " " << widths << " at " << i;
          }
          ASSERT_EQ(get(dst.data(), dst_type, count), 77);
        }
      }
    }
  }
}

TEST(Reduce, PartsAssociateAsABalancedTree) {
  for (const int parts : {2, 3, 4, 5, 7, 13}) {
    constexpr std::int64_t kCount = 1500;
    std::vector<std::vector<float>> data(static_cast<std::size_t>(parts));
    std::vector<const void*> views;
    for (int part = 0; part < parts; ++part) {
      auto& values = data[static_cast<std::size_t>(part)];
      for (std::int64_t i = 0; i < kCount; ++i) {
        values.push_back(std::sin(static_cast<float>(i * 13 + part * 7)) *
                         std::ldexp(1.0F, static_cast<int>(i + part) % 20));
      }
      views.push_back(values.data());
    }
    const auto tree = [&](const auto& self, int first, int last, std::size_t i) -> float {
      if (last - first == 1) return data[static_cast<std::size_t>(first)][i];
      int half = 1;
      while (2 * half < last - first) half *= 2;
      return self(self, first, first + half, i) + self(self, first + half, last, i);
    };
    std::vector<float> sum(kCount);
    reduce_parts({DType::f32, ReduceOp::sum, parts}, views, false, {sum.data(), true}, kCount);
    for (std::size_t i = 0; i < sum.size(); ++i) ASSERT_EQ(sum[i], tree(tree, 0, parts, i));
  }
}

// 256 contributions of 1/256 next to a 1: bf16 sums would lose every one of them.
TEST(Reduce, SumsOfBf16AccumulateInF32) {
  const Bf16 one = to_bf16(1.0F);
  const Bf16 small = to_bf16(1.0F / 256);
  std::vector<const void*> parts(257, &small);
  parts[0] = &one;
  Bf16 sum{};
  reduce_parts({DType::bf16, ReduceOp::sum, 257}, parts, false, {&sum, true}, 1);
  EXPECT_EQ(to_float(sum), 2.0F);
}

TEST(Reduce, NanGoesThroughMinimumAndMaximum) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const double wide_nan = std::numeric_limits<double>::quiet_NaN();
  for (const ReduceOp op : {ReduceOp::min, ReduceOp::max}) {
    const std::vector<float> with{nan, 1, nan};
    const std::vector<float> without{1, nan, nan};
    std::vector<float> result(3);
    reduce_pair({DType::f32, op, 2}, {with.data()}, {without.data()}, {result.data(), true}, 3);
    for (const float value : result) EXPECT_TRUE(std::isnan(value));
    const double one = 1;
    double wide = 0;
    reduce_pair({DType::f64, op, 2}, {&one}, {&wide_nan}, {&wide, true}, 1);
    EXPECT_TRUE(std::isnan(wide));
    reduce_pair({DType::f64, op, 2}, {&wide_nan}, {&one}, {&wide, true}, 1);
    EXPECT_TRUE(std::isnan(wide));
  }
}

TEST(Reduce, IntegersWrapAround) {
  const std::int32_t most = std::numeric_limits<std::int32_t>::max();
  std::int32_t result = 0;
  reduce_pair({DType::i32, ReduceOp::sum, 2}, {&most}, {&most}, {&result, true}, 1);
  EXPECT_EQ(result, -2);
}

TEST(Reduce, CopiesBetweenTypes) {
  for (const DType dtype : kTypes) {
    const DType wide = accumulation_type(dtype);
    std::vector<double> narrow(40);
    std::vector<double> middle(40);
    for (std::int64_t i = 0; i < 37; ++i) set(narrow.data(), dtype, i, value_of(i, 0));
    const Arithmetic arithmetic{dtype, ReduceOp::avg, 2};
    widen_values(arithmetic, narrow.data(), middle.data(), 37);
    for (std::int64_t i = 0; i < 37; ++i) EXPECT_EQ(get(middle.data(), wide, i), value_of(i, 0));
    complete_values(arithmetic, middle.data(), narrow.data(), 37);
    for (std::int64_t i = 0; i < 37; ++i) {
      const double half = value_of(i, 0) / 2;
      EXPECT_EQ(get(narrow.data(), dtype, i), dtype == DType::i32 ? std::trunc(half) : half);
    }
  }
}

}  // namespace
}  // namespace belay::comm
