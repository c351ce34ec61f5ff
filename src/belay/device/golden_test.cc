// Every kernel of the cpu and reference devices against PyTorch's values (tests/golden/ops);
// attention has its own file.

#include <gtest/gtest.h>

#include <string>

#include "belay/device/golden_operands.h"

namespace belay {
namespace {

// Case names end in the layout and the dtype: "odd_nt_f32".
MatmulArgs matmul(Operands& operands) {
  const std::string& name = operands.name();
  MatmulArgs args;
  args.a = operands.input("a");
  args.b = operands.input("b");
  args.transpose_a = name[name.find('_') + 1] == 't';
  args.transpose_b = name[name.find('_') + 2] == 't';
  return args;
}

TEST(GoldenTest, MatmulWithBias) {
  const GoldenFile file("ops/matmul.safetensors");
  each_kernel<MatmulArgs>(file, [](Operands& operands, auto&& run) {
    MatmulArgs args = matmul(operands);
    args.bias = operands.input("bias");
    args.dst = operands.output_like(args.a.dtype, "dst_bias");
    if (run(args)) operands.expect(args.dst, "dst_bias");
  });
}

// Weight gradients accumulate in f32 whatever the operands are.
TEST(GoldenTest, MatmulAccumulating) {
  const GoldenFile file("ops/matmul.safetensors");
  each_kernel<MatmulArgs>(file, [](Operands& operands, auto&& run) {
    MatmulArgs args = matmul(operands);
    args.dst = operands.input("before");
    args.accumulate = true;
    if (run(args)) operands.expect(args.dst, "dst_accumulated");
  });
}

NormKind norm_kind(const Operands& operands) {
  return begins_with(operands.name(), "layer") ? NormKind::layer : NormKind::rms;
}

TEST(GoldenTest, NormForward) {
  const GoldenFile file("ops/norm.safetensors");
  each_kernel<NormForwardArgs>(file, [](Operands& operands, auto&& run) {
    NormForwardArgs args;
    args.kind = norm_kind(operands);
    args.src = operands.input("src");
    const DType dtype = args.src.dtype;
    args.residual = operands.optional("residual");
    args.weight = operands.input("weight");
    args.bias = operands.optional("bias");
    args.eps = operands.number("eps");
    if (operands.has("sum")) args.sum = operands.output_like(dtype, "sum");
    args.dst = operands.output_like(dtype, "dst");
    if (operands.has("mean")) args.mean = operands.output_like(DType::f32, "mean");
    args.rstd = operands.output_like(DType::f32, "rstd");
    if (!run(args)) return;
    operands.expect(args.dst, "dst");
    operands.expect(args.rstd, "rstd");
    if (!args.mean.empty()) operands.expect(args.mean, "mean");
    if (!args.sum.empty()) operands.expect(args.sum, "sum");
  });
}

TEST(GoldenTest, NormBackward) {
  const GoldenFile file("ops/norm.safetensors");
  each_kernel<NormBackwardArgs>(file, [](Operands& operands, auto&& run) {
    NormBackwardArgs args;
    args.kind = norm_kind(operands);
    args.src = operands.input("src");
    if (operands.has("sum")) {  // stored as f32; exact in the dtype of src
      const std::vector<double> sum = operands.values("sum");
      for (std::size_t i = 0; i < sum.size(); ++i) {
        store(args.src, static_cast<std::int64_t>(i), sum[i]);
      }
    }
    args.weight = operands.input("weight");
    args.mean = operands.optional("mean");
    args.rstd = operands.input("rstd");
    args.d_dst = operands.input("d_dst");
    args.d_residual = operands.optional("d_residual");
    args.d_src = operands.output_like(args.src.dtype, "d_src");
    args.d_weight = operands.input("d_weight_before");
    args.d_bias = operands.optional("d_bias_before");
    if (!run(args)) return;
    operands.expect(args.d_src, "d_src");
    operands.expect(args.d_weight, "d_weight");
    if (!args.d_bias.empty()) operands.expect(args.d_bias, "d_bias");
  });
}

Activation activation_kind(const Operands& operands) {
  if (begins_with(operands.name(), "gelu_tanh")) return Activation::gelu_tanh;
  if (begins_with(operands.name(), "gelu_erf")) return Activation::gelu_erf;
  return Activation::silu;
}

TEST(GoldenTest, ActivationForward) {
  const GoldenFile file("ops/activation.safetensors");
  each_kernel<ActivationForwardArgs>(file, [](Operands& operands, auto&& run) {
    ActivationForwardArgs args;
    args.kind = activation_kind(operands);
    args.src = operands.input("src");
    args.dst = operands.output_like(args.src.dtype, "dst");
    args.gated = args.src.dim(1) != args.dst.dim(1);
    if (run(args)) operands.expect(args.dst, "dst");
  });
}

TEST(GoldenTest, ActivationBackward) {
  const GoldenFile file("ops/activation.safetensors");
  each_kernel<ActivationBackwardArgs>(file, [](Operands& operands, auto&& run) {
    ActivationBackwardArgs args;
    args.kind = activation_kind(operands);
    args.src = operands.input("src");
    args.d_dst = operands.input("d_dst");
    args.d_src = operands.output_like(args.src.dtype, "d_src");
    args.gated = args.src.dim(1) != args.d_dst.dim(1);
    if (run(args)) operands.expect(args.d_src, "d_src");
  });
}

TEST(GoldenTest, CrossEntropy) {
  const GoldenFile file("ops/cross_entropy.safetensors");
  each_kernel<CrossEntropyArgs>(file, [](Operands& operands, auto&& run) {
    CrossEntropyArgs args;
    args.logits = operands.input("logits");
    args.targets = operands.input("targets");
    args.nll = operands.output_like(DType::f32, "nll");
    args.d_logits = operands.output_like(args.logits.dtype, "d_logits");
    args.scale = operands.number("scale");
    args.z_loss = operands.number("z_loss");
    if (!run(args)) return;
    operands.expect(args.nll, "nll");
    operands.expect(args.d_logits, "d_logits");
    const std::int64_t vocab = args.logits.dim(1);
    for (std::int64_t row = 0; row < args.logits.dim(0); ++row) {
      if (args.targets.as<std::int32_t>()[row] >= 0) continue;
      EXPECT_EQ(load(args.nll, row), 0.0);
      for (std::int64_t c = 0; c < vocab; ++c) EXPECT_EQ(load(args.d_logits, row * vocab + c), 0.0);
    }
  });
}

TEST(GoldenTest, EmbeddingForward) {
  const GoldenFile file("ops/embedding.safetensors");
  for (const bool positions : {false, true}) {
    each_kernel<EmbeddingForwardArgs>(file, [&](Operands& operands, auto&& run) {
      EmbeddingForwardArgs args;
      args.tokens = operands.input("tokens");
      args.table = operands.input("table");
      if (positions) {
        args.positions = operands.input("positions");
        args.positions_table = operands.input("positions_table");
      }
      args.dst = operands.output_like(args.table.dtype, "dst");
      if (run(args)) operands.expect(args.dst, positions ? "dst" : "dst_plain");
    });
  }
}

TEST(GoldenTest, EmbeddingBackward) {
  const GoldenFile file("ops/embedding.safetensors");
  each_kernel<EmbeddingBackwardArgs>(file, [](Operands& operands, auto&& run) {
    EmbeddingBackwardArgs args;
    args.tokens = operands.input("tokens");
    args.positions = operands.input("positions");
    args.d_dst = operands.input("d_dst");
    args.d_table = operands.input("d_table_before");
    args.d_positions_table = operands.input("d_positions_table_before");
    if (!run(args)) return;
    operands.expect(args.d_table, "d_table");
    operands.expect(args.d_positions_table, "d_positions_table");
  });
}

// All steps in turn, each from the state that the one before left.
TEST(GoldenTest, Adamw) {
  const GoldenFile file("ops/adamw.safetensors");
  for (const DType copy : {DType::bf16, DType::f16}) {
    each_kernel<AdamwArgs>(file, [&](Operands& operands, auto&& run) {
      const Tensor gradients = operands.input("gradients");
      const std::int64_t n = gradients.dim(1);
      const std::vector<double> weights = operands.values("weights");
      AdamwArgs args;
      args.weights = operands.input("weights_before");
      args.m = operands.output(DType::f32, {n});
      args.v = operands.output(DType::f32, {n});
      args.copy = operands.output(copy, {n});
      std::memset(args.m.data, 0, args.m.bytes());
      std::memset(args.v.data, 0, args.v.bytes());
      args.lr = operands.number("lr");
      args.beta1 = operands.number("beta1");
      args.beta2 = operands.number("beta2");
      args.eps = operands.number("eps");
      args.weight_decay = operands.number("weight_decay");
      for (std::int64_t step = 0; step < gradients.dim(0); ++step) {
        args.grad = gradients.rows(step, step + 1).reshaped({n});
        args.grad_scale = operands.values("grad_scale")[static_cast<std::size_t>(step)];
        const auto power = static_cast<double>(step + 1);
        args.correction1 =
            static_cast<float>(1.0 - std::pow(static_cast<double>(args.beta1), power));
        args.correction2 =
            static_cast<float>(1.0 - std::pow(static_cast<double>(args.beta2), power));
        if (!run(args)) return;
        const std::vector<double> expected(weights.begin() + step * n,
                                           weights.begin() + (step + 1) * n);
        expect_close(to_doubles(args.weights), expected, kF32Tolerance, "weights");
        for (std::int64_t i = 0; i < n; ++i) {
          EXPECT_EQ(load(args.grad, i), 0.0);
          const float weight = args.weights.as<float>()[i];
          EXPECT_EQ(args.copy.as<std::uint16_t>()[i],
                    copy == DType::f16 ? to_f16(weight).bits : to_bf16(weight).bits);
        }
      }
      operands.expect(args.m, "m");
      operands.expect(args.v, "v");
    });
  }
}

TEST(GoldenTest, ReductionsAndAddition) {
  const GoldenFile file("ops/elementwise.safetensors");
  each_kernel<ColumnSumArgs>(file, [](Operands& operands, auto&& run) {
    ColumnSumArgs args;
    args.src = operands.input("src");
    args.dst = operands.input("before");
    if (run(args)) operands.expect(args.dst, "column_sum");
  });
  each_kernel<AddArgs>(file, [](Operands& operands, auto&& run) {
    AddArgs args;
    args.a = operands.input("src");
    args.b = operands.input("other");
    args.dst = operands.output(args.a.dtype, args.a.shape);
    if (run(args)) operands.expect(args.dst, "add");
  });
  each_kernel_of_case<SumOfSquaresArgs>(file, "plain_f32", [](Operands& operands, auto&& run) {
    SumOfSquaresArgs args;
    args.src = operands.input("src");
    args.dst = operands.output(DType::f64, {1});
    if (run(args)) operands.expect(args.dst, "sum_of_squares");
  });
  each_kernel_of_case<SumArgs>(file, "plain_f32", [](Operands& operands, auto&& run) {
    SumArgs args;
    args.src = operands.input("src");
    args.dst = operands.output(DType::f64, {1});
    args.dst.as<double>()[0] = 0;
    if (run(args)) operands.expect(args.dst, "sum");
  });
}

}  // namespace
}  // namespace belay
