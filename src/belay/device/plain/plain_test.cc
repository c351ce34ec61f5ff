// Compositions of plain operators against the fused operators of the cpu device, on shapes that fit
// no vector and no tile: two independent ways to the same results.

#include "belay/device/plain/plain.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "belay/device/host_pool.h"
#include "belay/device/ops_bench.h"

namespace belay::plain {
namespace {

// Values that depend on the seed and the place alone.
Tensor varied(HostPool& pool, DType dtype, const Shape& shape, std::uint32_t seed, double low = -2,
              double high = 2) {
  const Tensor tensor = pool.allocate(dtype, shape);
  std::uint32_t state = seed * 2654435761U + 1;
  for (std::int64_t i = 0; i < tensor.elements(); ++i) {
    state = state * 1664525U + 1013904223U;
    store(tensor, i, low + (high - low) * static_cast<double>(state >> 8) * 0x1p-24);
  }
  return tensor;
}

// Of a result's largest magnitude. In 16 bits every intermediate result of a composition is
// rounded.
double tolerance(DType dtype) {
  switch (dtype) {
    case DType::bf16:
      return 0.03;
    case DType::f16:
      return 0.004;
    default:
      return 2e-5;
  }
}

struct Result {
  std::string name;
  std::vector<double> values;
};

template <class Args>
std::vector<Result> results_of(const Args& args) {
  std::vector<Result> results;
  const auto add = [&](std::string_view name, const Rows& rows) {
    if (rows.data == nullptr) return;
    Result result{std::string(name), {}};
    for (std::int64_t row = 0; row < rows.rows; ++row) {
      for (std::int64_t i = 0; i < rows.width; ++i) result.values.push_back(load(rows, row, i));
    }
    results.push_back(std::move(result));
  };
  args.each_result([&](std::string_view name, const auto& result) {
    if constexpr (std::is_same_v<std::decay_t<decltype(result)>, Rows>) {
      add(name, result);
    } else {
      const std::int64_t count = result.elements();
      add(name, {result.data, result.dtype, 1, count, count});
    }
  });
  return results;
}

void expect_near(const std::vector<Result>& fused, const std::vector<Result>& plain, double limit) {
  ASSERT_EQ(fused.size(), plain.size());
  ASSERT_FALSE(fused.empty());
  for (std::size_t r = 0; r < fused.size(); ++r) {
    ASSERT_EQ(fused[r].values.size(), plain[r].values.size());
    double scale = 0;
    double worst = 0;
    for (std::size_t i = 0; i < fused[r].values.size(); ++i) {
      ASSERT_TRUE(std::isfinite(fused[r].values[i]) && std::isfinite(plain[r].values[i]))
          << fused[r].name << " at " << i;
      scale = std::max(scale, std::abs(fused[r].values[i]));
      worst = std::max(worst, std::abs(fused[r].values[i] - plain[r].values[i]));
    }
    EXPECT_GT(scale, 0) << fused[r].name;
    EXPECT_LE(worst, limit * scale) << fused[r].name;
  }
}

class PlainTest : public ::testing::TestWithParam<DType> {
 protected:
  // make(pool) lays out a call's operands anew; both sides start from equal ones.
  template <class Make>
  void expect_same(const Make& make) {
    const auto fused = make(pool_);
    launch(*lane_, fused);
    const auto plain = make(pool_);
    run(plain);
    expect_near(results_of(fused), results_of(plain), tolerance(GetParam()));
  }

  template <class Args>
  Composition run(const Args& args) {
    const Tensor memory = pool_.allocate(DType::u8, {std::int64_t{4} << 20});
    Arena arena("composition", memory.data, memory.bytes());
    Composition composition = compose(Bench{*lane_, arena}, args);
    EXPECT_LE(composition.kept_bytes + composition.scratch_bytes, arena.peak());
    if (composition.prepare) composition.prepare();
    composition.run();
    return composition;
  }

  HostPool pool_;
  std::unique_ptr<Device> device_ = make_device("cpu");
  std::unique_ptr<Lane> lane_ = device_->create_lane();
};

TEST_P(PlainTest, Norm) {
  for (const NormKind kind : {NormKind::layer, NormKind::rms}) {
    for (const bool residual : {false, true}) {
      SCOPED_TRACE(std::string(kind == NormKind::layer ? "layer" : "rms") +
                   (residual ? " residual" : ""));
      const Shape shape{9, 67};
      const auto statistics = [&](HostPool& pool) {
        return kind == NormKind::layer ? varied(pool, DType::f32, {9}, 7, -0.1, 0.1) : Tensor{};
      };
      expect_same([&](HostPool& pool) {
        NormForwardArgs args;
        args.kind = kind;
        args.src = varied(pool, GetParam(), shape, 1);
        if (residual) args.residual = varied(pool, GetParam(), shape, 2);
        if (residual) args.sum = pool.allocate(GetParam(), shape);
        args.weight = varied(pool, DType::f32, {67}, 3);
        if (kind == NormKind::layer) args.bias = varied(pool, DType::f32, {67}, 4);
        args.dst = pool.allocate(GetParam(), shape);
        args.mean = statistics(pool);
        args.rstd = pool.allocate(DType::f32, {9});
        return args;
      });
      expect_same([&](HostPool& pool) {
        NormBackwardArgs args;
        args.kind = kind;
        args.src = varied(pool, GetParam(), shape, 1);
        args.weight = varied(pool, DType::f32, {67}, 3);
        args.mean = statistics(pool);
        args.rstd = varied(pool, DType::f32, {9}, 8, 0.5, 1);
        args.d_dst = varied(pool, GetParam(), shape, 5);
        if (residual) args.d_residual = varied(pool, GetParam(), shape, 6);
        args.d_src = residual ? args.d_residual : pool.allocate(GetParam(), shape);
        args.d_weight = varied(pool, DType::f32, {67}, 9);
        if (kind == NormKind::layer) args.d_bias = varied(pool, DType::f32, {67}, 10);
        return args;
      });
    }
  }
}

TEST_P(PlainTest, Activation) {
  for (const Activation kind : {Activation::gelu_tanh, Activation::gelu_erf, Activation::silu}) {
    for (const bool gated : {false, true}) {
      SCOPED_TRACE("kind " + std::to_string(static_cast<int>(kind)) + (gated ? " gated" : ""));
      const Shape shape{5, 37};
      const Shape wide{5, gated ? 74 : 37};
      expect_same([&](HostPool& pool) {
        return ActivationForwardArgs{kind, gated, varied(pool, GetParam(), wide, 1, -6, 6),
                                     pool.allocate(GetParam(), shape)};
      });
      for (const bool in_place : {false, true}) {
        expect_same([&](HostPool& pool) {
          const Tensor src = varied(pool, GetParam(), wide, 1, -6, 6);
          return ActivationBackwardArgs{kind, gated, src, varied(pool, GetParam(), shape, 2),
                                        in_place ? src : pool.allocate(GetParam(), wide)};
        });
      }
    }
  }
}

TEST_P(PlainTest, CrossEntropy) {
  for (const bool gradient : {false, true}) {
    expect_same([&](HostPool& pool) {
      CrossEntropyArgs args;
      args.logits = varied(pool, GetParam(), {7, 1003}, 1, -6, 6);
      args.targets = pool.of(DType::i32, {7}, std::vector<double>{0, 1002, -1, 5, 500, -1, 77});
      args.nll = pool.allocate(DType::f32, {7});
      if (gradient) args.d_logits = args.logits;
      args.scale = 0.25F;
      args.z_loss = 0.01F;
      return args;
    });
  }
}

TEST_P(PlainTest, Adamw) {
  const auto make = [&](HostPool& pool) {
    AdamwArgs args;
    args.weights = varied(pool, DType::f32, {1003}, 1);
    args.grad = varied(pool, DType::f32, {1003}, 2);
    args.m = varied(pool, DType::f32, {1003}, 3);
    args.v = varied(pool, DType::f32, {1003}, 4, 0.1, 1);
    if (GetParam() != DType::f32) args.copy = pool.allocate(GetParam(), {1003});
    args.lr = 0.05F;
    args.weight_decay = 0.1F;
    args.correction1 = 0.3F;
    args.correction2 = 0.2F;
    args.grad_scale = 0.37;
    return args;
  };
  expect_same(make);
  const AdamwArgs args = make(pool_);
  run(args);
  for (std::int64_t i = 0; i < 1003; ++i) ASSERT_EQ(load(args.grad, i), 0.0);
}

TEST_P(PlainTest, Embedding) {
  for (const bool positions : {false, true}) {
    expect_same([&](HostPool& pool) {
      EmbeddingForwardArgs args;
      args.tokens = pool.of(DType::i32, {5}, std::vector<double>{3, 0, 10, 3, 7});
      args.table = varied(pool, GetParam(), {11, 19}, 1);
      if (positions) {
        args.positions = pool.of(DType::i32, {5}, std::vector<double>{0, 1, 2, 0, 1});
        args.positions_table = varied(pool, GetParam(), {3, 19}, 2);
      }
      args.dst = pool.allocate(GetParam(), {5, 19});
      return args;
    });
  }
}

struct AttentionCase {
  std::int64_t batch;
  std::int64_t q_len;
  std::int64_t kv_len;
  std::int64_t heads;
  std::int64_t kv_heads;
  std::int64_t head_dim;
  bool documents;
};

AttentionForwardArgs attention(HostPool& pool, DType dtype, const AttentionCase& c) {
  AttentionForwardArgs args;
  args.shape = {c.batch,
                c.q_len,
                c.kv_len,
                c.heads,
                c.kv_heads,
                c.head_dim,
                1.0F / std::sqrt(static_cast<float>(c.head_dim))};
  const std::int64_t q_width = c.heads * c.head_dim;
  const std::int64_t kv_width = c.kv_heads * c.head_dim;
  args.q = columns(varied(pool, dtype, {c.batch * c.q_len, q_width + 5}, 1), 3, 3 + q_width);
  const Tensor kv = varied(pool, dtype, {c.batch * c.kv_len, 2 * kv_width}, 2);
  args.k = columns(kv, 0, kv_width);
  args.v = columns(kv, kv_width, 2 * kv_width);
  if (c.documents) {
    std::vector<double> begins;
    for (std::int64_t i = 0; i < c.batch * c.q_len; ++i) {
      begins.push_back(static_cast<double>((c.kv_len - c.q_len + i % c.q_len) / 13 * 13));
    }
    args.doc_begin = pool.of(DType::i32, {c.batch * c.q_len}, begins);
  }
  args.dst = pool.allocate(dtype, {c.batch * c.q_len, q_width});
  args.lse = pool.allocate(DType::f32, {c.batch, c.heads, c.q_len});
  return args;
}

constexpr AttentionCase kSelfAttention[] = {{1, 1, 1, 1, 1, 4, false},
                                            {2, 17, 17, 2, 2, 16, false},
                                            {1, 65, 65, 4, 2, 32, true},
                                            {2, 70, 70, 3, 1, 24, true}};

TEST_P(PlainTest, AttentionForward) {
  for (const AttentionCase& c : kSelfAttention) {
    SCOPED_TRACE(c.q_len);
    expect_same([&](HostPool& pool) { return attention(pool, GetParam(), c); });
  }
  const AttentionCase later{2, 5, 50, 4, 2, 16, true};
  expect_same([&](HostPool& pool) { return attention(pool, GetParam(), later); });
}

TEST_P(PlainTest, AttentionBackward) {
  for (const AttentionCase& c : kSelfAttention) {
    if (c.q_len == 1) continue;  // one visible key: no gradient reaches the scores
    SCOPED_TRACE(c.q_len);
    expect_same([&](HostPool& pool) {
      const AttentionForwardArgs forward = attention(pool, GetParam(), c);
      launch(*lane_, forward);
      AttentionBackwardArgs args;
      args.shape = forward.shape;
      args.q = forward.q;
      args.k = forward.k;
      args.v = forward.v;
      args.doc_begin = forward.doc_begin;
      args.dst = forward.dst;
      args.lse = forward.lse;
      args.d_dst = varied(pool, GetParam(), forward.dst.shape, 3);
      const Tensor d_q = pool.allocate(GetParam(), {forward.q.rows, forward.q.width});
      const Tensor d_kv = pool.allocate(GetParam(), {forward.k.rows, 2 * forward.k.width});
      args.d_q = columns(d_q, 0, forward.q.width);
      args.d_k = columns(d_kv, 0, forward.k.width);
      args.d_v = columns(d_kv, forward.k.width, 2 * forward.k.width);
      return args;
    });
  }
}

TEST_P(PlainTest, AttentionKeepsTheScoresOfAllHeads) {
  const AttentionCase c{2, 17, 17, 4, 2, 8, false};
  const Composition composition = run(attention(pool_, GetParam(), c));
  EXPECT_EQ(composition.kept_bytes, 2 * 4 * 17 * 17 * size_of(GetParam()));
}

TEST_P(PlainTest, HeadWithWholeLogits) {
  const auto make = [&] {
    LinearCrossEntropy args;
    args.hidden = varied(pool_, GetParam(), {13, 24}, 1, -1, 1);
    args.weight = varied(pool_, GetParam(), {101, 24}, 2, -0.5, 0.5);
    args.targets = pool_.of(DType::i32, {13},
                            std::vector<double>{0, 100, -1, 5, 50, -1, 77, 1, 2, 3, 4, 9, 8});
    args.nll = pool_.allocate(DType::f32, {13});
    args.d_hidden = pool_.allocate(GetParam(), {13, 24});
    args.d_weight = varied(pool_, DType::f32, {101, 24}, 3);
    args.scale = 0.5F;
    args.z_loss = 0.001F;
    args.block_rows = 5;
    return args;
  };
  const auto results = [](const LinearCrossEntropy& args) {
    std::vector<Result> list;
    for (const Tensor& tensor : {args.nll, args.d_hidden, args.d_weight}) {
      Result result{to_string(tensor.shape), {}};
      for (std::int64_t i = 0; i < tensor.elements(); ++i) result.values.push_back(load(tensor, i));
      list.push_back(result);
    }
    return list;
  };
  const LinearCrossEntropy fused = make();
  const Tensor memory = pool_.allocate(DType::u8, {1 << 16});
  Arena blocks("blocks", memory.data, memory.bytes());
  linear_cross_entropy(*lane_, blocks, fused);
  const LinearCrossEntropy plain = make();
  const Composition composition = run(plain);
  expect_near(results(fused), results(plain), tolerance(GetParam()));
  EXPECT_GE(composition.scratch_bytes, 2 * 13 * 101 * sizeof(float));
  EXPECT_LT(blocks.peak(), composition.scratch_bytes);
}

INSTANTIATE_TEST_SUITE_P(Dtypes, PlainTest, ::testing::Values(DType::f32, DType::bf16, DType::f16));

TEST(PlainRegistryTest, FindsCompositionsByTheNameOfTheOperator) {
  const auto device = make_device("cpu");
  const auto lane = device->create_lane();
  HostPool pool;
  const Tensor memory = pool.allocate(DType::u8, {1 << 16});
  Arena arena("composition", memory.data, memory.bytes());
  const Tensor src = pool.filled(DType::f32, {3, 5}, 1.0);
  const Tensor dst = pool.allocate(DType::f32, {3, 5});
  const auto call_of = [&](const auto& args) {
    return make_call(args, select_kernel(*device, args));
  };
  const OpCall fused = call_of(ActivationForwardArgs{Activation::silu, false, src, dst});
  const Composition composition = compose(Bench{*lane, arena}, fused);
  ASSERT_TRUE(composition.run);
  composition.run();
  EXPECT_NEAR(load(dst, 14), 1 / (1 + std::exp(-1.0)), 1e-6);
  EXPECT_FALSE(compose(Bench{*lane, arena}, call_of(AddArgs{src, src, dst})).run);
  const auto names = composed_ops();
  EXPECT_NE(std::find(names.begin(), names.end(), fused.op), names.end());
  EXPECT_EQ(std::find(names.begin(), names.end(), AddArgs::kName), names.end());
}

TEST(PlainRegistryTest, EveryCompositionIsBenched) {
  const auto benched = benched_ops();
  for (const std::string_view op : composed_ops()) {
    EXPECT_NE(std::find(benched.begin(), benched.end(), op), benched.end()) << op;
  }
}

}  // namespace
}  // namespace belay::plain
