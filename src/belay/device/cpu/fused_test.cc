// What the conformance harness does not reach: tensors large enough to be written past the caches,
// NaN, and the accuracy of the vectorised functions over their whole range.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "belay/device/cpu/pieces.h"
#include "belay/device/device.h"
#include "belay/device/host_pool.h"

namespace belay {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// `count` elements, `skip` of them past an aligned address, with values in [-4, 4).
Tensor varied(HostPool& pool, DType dtype, const Shape& shape, std::int64_t skip,
              std::uint32_t seed) {
  const Tensor block = pool.allocate(dtype, {shape.elements() + skip});
  const Tensor tensor{block.as<std::byte>() + static_cast<std::size_t>(skip) * size_of(dtype),
                      dtype, shape};
  std::uint32_t state = seed;
  for (std::int64_t i = 0; i < tensor.elements(); ++i) {
    state = state * 1664525U + 1013904223U;
    store(tensor, i, static_cast<double>(state >> 8) * 0x1p-21 - 4.0);
  }
  return tensor;
}

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.bytes() == b.bytes() && std::memcmp(a.data, b.data, a.bytes()) == 0;
}

// Rows of a little over kStreamBytes in all.
struct Large {
  DType dtype;
  std::int64_t width;
  [[nodiscard]] std::int64_t rows() const {
    return static_cast<std::int64_t>(kStreamBytes / size_of(dtype)) / width + 3;
  }
};

class StreamingTest : public ::testing::TestWithParam<Large> {
 protected:
  // Calls make(begin, end), which gives the arguments for those rows, for all rows at once and then
  // for small parts; `dst(args)` must get the same bits in both.
  template <class Make, class Dst>
  void expect_same(const Make& make, const Dst& dst) {
    const std::int64_t rows = GetParam().rows();
    auto whole = make(0, rows);
    ASSERT_TRUE(streams(dst(whole)));
    launch(*lane_, whole);
    const Tensor kept = pool_.allocate(dst(whole).dtype, dst(whole).shape);
    std::memcpy(kept.data, dst(whole).data, kept.bytes());
    std::memset(dst(whole).data, 0, kept.bytes());
    for (std::int64_t begin = 0; begin < rows; begin += 500) {
      auto part = make(begin, std::min(rows, begin + 500));
      ASSERT_FALSE(streams(dst(part)));
      launch(*lane_, part);
    }
    EXPECT_TRUE(same_bits(kept, dst(whole)));
  }

  Tensor operand(std::int64_t skip, std::uint32_t seed, std::int64_t times = 1) {
    return varied(pool_, GetParam().dtype, {GetParam().rows(), times * GetParam().width}, skip,
                  seed);
  }

  HostPool pool_;
  std::unique_ptr<Device> device_ = make_device("cpu");
  std::unique_ptr<Lane> lane_ = device_->create_lane();
};

TEST_P(StreamingTest, NormForward) {
  const std::int64_t width = GetParam().width;
  const Tensor src = operand(1, 1);
  const Tensor residual = operand(0, 2);
  const Tensor sum = operand(3, 3);
  const Tensor dst = operand(5, 4);
  const Tensor weight = varied(pool_, DType::f32, {width}, 0, 5);
  const Tensor bias = varied(pool_, DType::f32, {width}, 0, 6);
  const Tensor mean = pool_.allocate(DType::f32, {GetParam().rows()});
  const Tensor rstd = pool_.allocate(DType::f32, {GetParam().rows()});
  const auto make = [&](std::int64_t b, std::int64_t e) {
    return NormForwardArgs{
        NormKind::layer, src.rows(b, e), residual.rows(b, e), weight,          bias,
        1e-5F,           sum.rows(b, e), dst.rows(b, e),      mean.rows(b, e), rstd.rows(b, e)};
  };
  expect_same(make, [](const NormForwardArgs& args) { return args.dst; });
  expect_same(make, [](const NormForwardArgs& args) { return args.sum; });
}

TEST_P(StreamingTest, Activation) {
  const Tensor src = operand(1, 1, 2);
  const Tensor dst = operand(3, 2);
  expect_same(
      [&](std::int64_t b, std::int64_t e) {
        return ActivationForwardArgs{Activation::silu, true, src.rows(b, e), dst.rows(b, e)};
      },
      [](const ActivationForwardArgs& args) { return args.dst; });
  const Tensor plain = operand(2, 3);
  const Tensor d_dst = operand(0, 4);
  expect_same(
      [&](std::int64_t b, std::int64_t e) {
        return ActivationBackwardArgs{Activation::gelu_tanh, false, plain.rows(b, e),
                                      d_dst.rows(b, e), dst.rows(b, e)};
      },
      [](const ActivationBackwardArgs& args) { return args.d_src; });
}

TEST_P(StreamingTest, AddCastAndFill) {
  const Tensor a = operand(1, 1);
  const Tensor b = operand(0, 2);
  const Tensor dst = operand(7, 3);
  expect_same(
      [&](std::int64_t begin, std::int64_t end) {
        return AddArgs{a.rows(begin, end), b.rows(begin, end), dst.rows(begin, end)};
      },
      [](const AddArgs& args) { return args.dst; });
  expect_same(
      [&](std::int64_t begin, std::int64_t end) {
        return CastArgs{a.rows(begin, end), dst.rows(begin, end)};
      },
      [](const CastArgs& args) { return args.dst; });
  expect_same(
      [&](std::int64_t begin, std::int64_t end) {
        return FillArgs{dst.rows(begin, end), 1.5};
      },
      [](const FillArgs& args) { return args.dst; });
}

TEST_P(StreamingTest, EmbeddingForward) {
  const std::int64_t rows = GetParam().rows();
  const Tensor table = varied(pool_, GetParam().dtype, {50, GetParam().width}, 1, 1);
  const Tensor dst = operand(3, 2);
  const Tensor tokens = pool_.allocate(DType::i32, {rows});
  for (std::int64_t t = 0; t < rows; ++t) tokens.as<std::int32_t>()[t] = static_cast<int>(t % 50);
  expect_same(
      [&](std::int64_t b, std::int64_t e) {
        return EmbeddingForwardArgs{tokens.rows(b, e), table, {}, {}, dst.rows(b, e)};
      },
      [](const EmbeddingForwardArgs& args) { return args.dst; });
}

INSTANTIATE_TEST_SUITE_P(Dtypes, StreamingTest,
                         ::testing::Values(Large{DType::f32, 1001}, Large{DType::bf16, 2003},
                                           Large{DType::f16, 2003}));

// The largest error of value(x) in units of the last place of the exact result, over a sweep.
template <class Value, class Exact>
double worst_ulps(const std::vector<float>& xs, const Value& value, const Exact& exact) {
  double worst = 0;
  for (std::size_t i = 0; i < xs.size(); ++i) {
    const double want = exact(static_cast<double>(xs[i]));
    const double ulp =
        std::ldexp(1.0, std::max(std::ilogb(want), -126) - 23);  // of f32 at the exact result
    worst = std::max(worst, std::abs(static_cast<double>(value[i]) - want) / ulp);
  }
  return worst;
}

TEST(FusedMathTest, ActivationsErrByAFewUlpsOnEitherSideOfZero) {
  std::vector<float> xs;
  for (float x = -8.0F; x < 8.0F; x += 0.00137F) xs.push_back(x);
  const auto count = static_cast<std::int64_t>(xs.size());
  const auto device = make_device("cpu");
  const auto lane = device->create_lane();
  HostPool pool;
  const Tensor src{xs.data(), DType::f32, {1, count}};
  const Tensor dst = pool.allocate(DType::f32, {1, count});
  const auto worst = [&](Activation kind, const auto& exact) {
    launch(*lane, ActivationForwardArgs{kind, false, src, dst});
    return worst_ulps(xs, dst.as<float>(), exact);
  };
  EXPECT_LT(worst(Activation::silu, [](double x) { return x / (1 + std::exp(-x)); }), 10);
  // A few ulps with fused multiply-add; without it the square in the tail's exponent is rounded.
  EXPECT_LT(worst(Activation::gelu_erf,
                  [](double x) { return 0.5 * x * std::erfc(-x / std::sqrt(2.0)); }),
            60);
  // The cubic makes the exponent reach -70 at -8: each rounding of it is worth 35 ulps there.
  EXPECT_LT(worst(Activation::gelu_tanh,
                  [](double x) {
                    const double u = std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
                    return x / (1 + std::exp(-2 * u));
                  }),
            150);
}

TEST(FusedMathTest, NanComesThrough) {
  const auto device = make_device("cpu");
  const auto lane = device->create_lane();
  HostPool pool;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const Tensor src = pool.filled(dtype, {1, 67}, 0.5);
    const Tensor d_dst = pool.filled(dtype, {1, 67}, 1.0);
    const Tensor dst = pool.allocate(dtype, {1, 67});
    for (const std::int64_t at : {0, 33, 66}) {
      store(src, at, static_cast<double>(kNan));
      for (const Activation kind :
           {Activation::gelu_tanh, Activation::gelu_erf, Activation::silu}) {
        launch(*lane, ActivationForwardArgs{kind, false, src, dst});
        EXPECT_TRUE(std::isnan(load(dst, at)));
        EXPECT_FALSE(std::isnan(load(dst, at == 0 ? 1 : at - 1)));
        launch(*lane, ActivationBackwardArgs{kind, false, src, d_dst, dst});
        EXPECT_TRUE(std::isnan(load(dst, at)));
      }
      CrossEntropyArgs loss;
      loss.logits = src;
      loss.targets = pool.filled(DType::i32, {1}, 5);
      loss.nll = pool.allocate(DType::f32, {1});
      loss.d_logits = dst;
      launch(*lane, loss);
      EXPECT_TRUE(std::isnan(load(loss.nll, 0)));
      EXPECT_TRUE(std::isnan(load(dst, 20)));
      store(src, at, 0.5);
    }
  }
}

// Logits of minus infinity (masked classes), whole blocks of them too, have no probability.
TEST(FusedMathTest, CrossEntropyAllowsMaskedClasses) {
  constexpr std::int64_t kVocab = 6000;
  const auto device = make_device("cpu");
  const auto lane = device->create_lane();
  HostPool pool;
  CrossEntropyArgs args;
  args.logits = pool.filled(DType::f32, {1, kVocab}, -INFINITY);
  for (const std::int64_t c : {3000, 3001, 3002, 5999}) store(args.logits, c, 2.0);
  args.targets = pool.filled(DType::i32, {1}, 3001);
  args.nll = pool.allocate(DType::f32, {1});
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    args.d_logits = pool.allocate(dtype, {1, kVocab});
    launch(*lane, args);
    EXPECT_NEAR(load(args.nll, 0), std::log(4.0), 1e-6);
    EXPECT_EQ(load(args.d_logits, 17), 0.0);
    EXPECT_NEAR(load(args.d_logits, 5999), 0.25, 1e-6);
    EXPECT_NEAR(load(args.d_logits, 3001), -0.75, 1e-6);
  }
}

}  // namespace
}  // namespace belay
