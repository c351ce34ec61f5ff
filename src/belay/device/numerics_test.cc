// Numbers at the edge: huge gradients, infinities, steps smaller than bf16 can hold, averages over
// unequal micro-batches. Every kernel has to get them right, not just the reference.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "belay/device/for_each_kernel.h"

namespace belay {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

AdamwArgs adamw(HostPool& pool, std::int64_t n, double weight, double gradient) {
  AdamwArgs args;
  args.weights = pool.filled(DType::f32, {n}, weight);
  args.grad = pool.filled(DType::f32, {n}, gradient);
  args.m = pool.filled(DType::f32, {n}, 0);
  args.v = pool.filled(DType::f32, {n}, 0);
  return args;
}

TEST(NumericsTest, GradientsOf1e20AreClippedToATenthNotToZero) {
  constexpr std::int64_t kCount = 100;
  for_each_kernel<SumOfSquaresArgs>("100 gradients of 1e20", [](auto&& run) {
    HostPool pool;
    SumOfSquaresArgs args;
    args.src = pool.filled(DType::f32, {kCount}, 1e20);
    args.dst = pool.allocate(DType::f64, {1});
    if (!run(args)) return;
    EXPECT_NEAR(std::sqrt(load(args.dst, 0)), 1e21, 1e21 * 1e-6);
  });
  for_each_kernel<AdamwArgs>("gradients of 1e20, scaled to norm 1", [](auto&& run) {
    HostPool pool;
    AdamwArgs args = adamw(pool, kCount, 1.0, 1e20);
    args.lr = 1e-3F;
    args.correction1 = 1.0F - args.beta1;
    args.correction2 = 1.0F - args.beta2;
    args.grad_scale = 1e-21;
    if (!run(args)) return;
    for (std::int64_t i = 0; i < kCount; ++i) {
      EXPECT_NEAR(load(args.m, i), 0.1 * 0.1, 1e-7);         // (1 - beta1) * 0.1
      EXPECT_NEAR(load(args.v, i), 1e-3 * 0.1 * 0.1, 1e-9);  // (1 - beta2) * 0.1^2
      EXPECT_NEAR(load(args.weights, i), 1.0 - 1e-3, 1e-6);
    }
  });
}

TEST(NumericsTest, OneInfiniteOrNanGradientShowsInTheNormWhereverItIs) {
  for (const float bad : {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
    for (const std::int64_t at : {std::int64_t{0}, std::int64_t{4097}, std::int64_t{9998}}) {
      for_each_kernel<SumOfSquaresArgs>("one bad gradient", [&](auto&& run) {
        HostPool pool;
        SumOfSquaresArgs args;
        args.src = pool.filled(DType::f32, {9999}, 1.0);
        args.src.template as<float>()[at] = bad;
        args.dst = pool.allocate(DType::f64, {1});
        if (!run(args)) return;
        EXPECT_FALSE(std::isfinite(load(args.dst, 0))) << bad << " at " << at;
      });
    }
  }
}

// A step of 6e-4 is far below what bf16 resolves at 1 (2^-8): only the f32 weights see it.
TEST(NumericsTest, SmallStepsReachTheBf16CopyThroughTheF32Weights) {
  constexpr std::int64_t kCount = 37;
  for_each_kernel<AdamwArgs>("100 steps of 6e-4", [](auto&& run) {
    HostPool pool;
    AdamwArgs args = adamw(pool, kCount, 1.0, 0.0);
    args.copy = pool.filled(DType::bf16, {kCount}, 1.0);
    args.lr = 6e-4F;
    for (int step = 1; step <= 100; ++step) {
      for (std::int64_t i = 0; i < kCount; ++i) store(args.grad, i, 0.25);
      args.correction1 = static_cast<float>(1.0 - std::pow(static_cast<double>(args.beta1), step));
      args.correction2 = static_cast<float>(1.0 - std::pow(static_cast<double>(args.beta2), step));
      if (!run(args)) return;
    }
    for (std::int64_t i = 0; i < kCount; ++i) {
      EXPECT_NEAR(load(args.weights, i), 0.940, 1e-3);
      EXPECT_EQ(load(args.copy, i), 0.94140625);
    }
  });
}

// Logits of `vocab` classes whose loss is `nll` for target 0.
std::vector<double> row_with_loss(double nll, std::int64_t vocab) {
  std::vector<double> row(static_cast<std::size_t>(vocab), 0.0);
  row[0] = -std::log(std::expm1(nll) / static_cast<double>(vocab - 1));
  return row;
}

struct LossAndGradient {
  double loss = 0;
  std::vector<double> bias_gradient;
};

// Runs the micro-batches in turn, each scaled by the tokens that count in all of them together.
LossAndGradient accumulate(const std::vector<std::vector<double>>& micro_batches,
                           std::int64_t vocab, Device& device) {
  HostPool pool;
  const auto lane = device.create_lane();
  std::int64_t tokens = 0;
  for (const auto& losses : micro_batches) tokens += static_cast<std::int64_t>(losses.size());
  const Tensor sum = pool.filled(DType::f64, {1}, 0);
  const Tensor gradient = pool.filled(DType::f32, {vocab}, 0);
  for (const auto& losses : micro_batches) {
    const auto rows = static_cast<std::int64_t>(losses.size());
    std::vector<double> logits;
    for (const double nll : losses) {
      const std::vector<double> row = row_with_loss(nll, vocab);
      logits.insert(logits.end(), row.begin(), row.end());
    }
    CrossEntropyArgs cross_entropy;
    cross_entropy.logits = pool.of(DType::f32, {rows, vocab}, logits);
    cross_entropy.targets = pool.filled(DType::i32, {rows}, 0);
    cross_entropy.nll = pool.allocate(DType::f32, {rows});
    cross_entropy.d_logits = pool.allocate(DType::f32, {rows, vocab});
    cross_entropy.scale = 1.0F / static_cast<float>(tokens);
    launch(*lane, cross_entropy);
    SumArgs total;
    total.src = cross_entropy.nll;
    total.dst = sum;
    launch(*lane, total);
    ColumnSumArgs columns;
    columns.src = cross_entropy.d_logits;
    columns.dst = gradient;
    launch(*lane, columns);
    lane->wait();
  }
  LossAndGradient result{load(sum, 0) / static_cast<double>(tokens), {}};
  for (std::int64_t c = 0; c < vocab; ++c) result.bias_gradient.push_back(load(gradient, c));
  return result;
}

TEST(NumericsTest, UnequalMicroBatchesGiveTheLossAndGradientOfOneBatch) {
  for (const char* name : {"reference", "cpu"}) {
    const auto device = make_device(name);
    const LossAndGradient one = accumulate({{2, 2, 2, 6}}, 11, *device);
    const LossAndGradient two = accumulate({{2, 2, 2}, {6}}, 11, *device);
    EXPECT_NEAR(one.loss, 3.0, 3e-6) << name;
    EXPECT_NEAR(two.loss, 3.0, 3e-6) << name;
    for (std::size_t c = 0; c < one.bias_gradient.size(); ++c) {
      EXPECT_NEAR(one.bias_gradient[c], two.bias_gradient[c], 1e-6) << name;
    }
  }
}

TEST(NumericsTest, ABatchWithoutLabelsHasZeroLossAndZeroGradientExactly) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for_each_kernel<CrossEntropyArgs>("no labels", [&](auto&& run) {
      HostPool pool;
      CrossEntropyArgs args;
      args.logits = pool.filled(dtype, {5, 67}, 88.0);
      args.targets = pool.filled(DType::i32, {5}, -1);
      args.nll = pool.allocate(DType::f32, {5});
      args.d_logits = pool.allocate(dtype, {5, 67});
      args.z_loss = 1e-4F;
      if (!run(args)) return;
      for (std::int64_t i = 0; i < 5; ++i) EXPECT_EQ(load(args.nll, i), 0.0);
      for (std::int64_t i = 0; i < 5 * 67; ++i) EXPECT_EQ(load(args.d_logits, i), 0.0);
    });
  }
}

// 2 layers, hidden 32, 4 heads of 8, 2 key heads, ffn 64 with two matrices, vocab 256, seq 32,
// untied head: what the operators say they compute, per token and step.
TEST(NumericsTest, OperatorCostsAddUpToTheTrainingFlopsOfTheTinyModel) {
  constexpr std::int64_t kTokens = 32;
  const auto product = [](std::int64_t m, std::int64_t n, std::int64_t k) {
    MatmulArgs args;
    args.a.shape = {m, k};
    args.b.shape = {k, n};
    args.dst.shape = {m, n};
    return args.cost().flops;
  };
  // Forward, gradient of the input, gradient of the weights.
  const auto linear = [&](std::int64_t in, std::int64_t out) {
    return product(kTokens, out, in) + product(kTokens, in, out) + product(out, in, kTokens);
  };
  const AttentionShape shape{1, kTokens, kTokens, 4, 2, 8, 1.0F};
  AttentionForwardArgs forward;
  forward.shape = shape;
  AttentionBackwardArgs backward;
  backward.shape = shape;
  const double layer = linear(32, 32 + 2 * 16) + linear(32, 32) + linear(32, 64) + linear(64, 32) +
                       forward.cost().flops + backward.cost().flops;
  // Attention counts each visible pair: (seq + 1) / 2 keys per query.
  EXPECT_DOUBLE_EQ((2.0 * layer + linear(32, 256)) / kTokens, 147840.0);
}

}  // namespace
}  // namespace belay
