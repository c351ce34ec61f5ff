// Reference: normalisation, activations, cross-entropy.

#include <cmath>
#include <numbers>

#include "belay/base/parallel.h"
#include "belay/device/finite.h"
#include "belay/device/reference/element.h"
#include "belay/device/reference/kernels.h"

namespace belay {
namespace {

struct ValueAndSlope {
  double value;
  double slope;
};

ValueAndSlope activate(Activation kind, double x) {
  switch (kind) {
    case Activation::gelu_tanh: {
      const double c = std::sqrt(2.0 / std::numbers::pi);
      const double t = std::tanh(c * (x + 0.044715 * x * x * x));
      const double inner = c * (1.0 + 3.0 * 0.044715 * x * x);
      return {0.5 * x * (1.0 + t), 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * inner};
    }
    case Activation::gelu_erf: {
      const double phi = 0.5 * std::erfc(-x / std::numbers::sqrt2);
      const double density = std::exp(-0.5 * x * x) / std::sqrt(2.0 * std::numbers::pi);
      return {x * phi, phi + x * density};
    }
    case Activation::silu: {
      const double s = 1.0 / (1.0 + std::exp(-x));
      return {x * s, s * (1.0 + x * (1.0 - s))};
    }
  }
  return {0, 0};
}

}  // namespace

void run_reference(const NormForwardArgs& wanted, KernelContext& context) {
  const NormForwardArgs args = with_settled_sum(
      wanted, context,
      [](const AddArgs& add, KernelContext& add_context) { run_reference(add, add_context); });
  const std::int64_t hidden = args.src.dim(1);
  const auto width = static_cast<double>(hidden);
  const auto kept = [&](double value) { return kept_inside(value, args.src.dtype, args.inside); };
  parallel_for(args.src.dim(0), [&](std::int64_t t) {
    const std::int64_t base = t * hidden;
    const Tensor& x = args.sum.empty() ? args.src : args.sum;
    if (!args.sum.empty()) {
      for (std::int64_t c = base; c < base + hidden; ++c) {
        store(args.sum, c, load(args.src, c) + load(args.residual, c));
      }
    }
    double mean = 0;
    if (args.kind == NormKind::layer) {
      for (std::int64_t c = base; c < base + hidden; ++c) mean += load(x, c);
      mean = kept(kept(mean) / width);
      store(args.mean, t, mean);
    }
    double variance = 0;
    for (std::int64_t c = base; c < base + hidden; ++c) {
      const double centred = load(x, c) - mean;
      variance += centred * centred;
    }
    const double rstd =
        kept(1.0 / std::sqrt(kept(variance) / width + static_cast<double>(args.eps)));
    store(args.rstd, t, rstd);
    for (std::int64_t c = 0; c < hidden; ++c) {
      double y = (load(x, base + c) - mean) * rstd * load(args.weight, c);
      if (!args.bias.empty()) y += load(args.bias, c);
      store(args.dst, base + c, y);
    }
  });
}

// With xhat = (x - mean) rstd and g = d_dst weight:
//   d_x = rstd (g - mean(g) - xhat mean(g xhat)), without mean(g) for rms.
void run_reference(const NormBackwardArgs& args, KernelContext&) {
  const std::int64_t tokens = args.src.dim(0);
  const std::int64_t hidden = args.src.dim(1);
  const auto mean_of = [&](std::int64_t t) { return args.mean.empty() ? 0.0 : load(args.mean, t); };
  parallel_for(hidden, [&](std::int64_t c) {
    double d_weight = 0;
    double d_bias = 0;
    for (std::int64_t t = 0; t < tokens; ++t) {
      const double d = load(args.d_dst, t * hidden + c);
      d_weight += d * (load(args.src, t * hidden + c) - mean_of(t)) * load(args.rstd, t);
      d_bias += d;
    }
    store(args.d_weight, c, load(args.d_weight, c) + d_weight);
    if (!args.d_bias.empty()) store(args.d_bias, c, load(args.d_bias, c) + d_bias);
  });
  parallel_for(tokens, [&](std::int64_t t) {
    const std::int64_t base = t * hidden;
    const double mean = mean_of(t);
    const double rstd = load(args.rstd, t);
    double mean_g = 0;
    double mean_gx = 0;
    for (std::int64_t c = 0; c < hidden; ++c) {
      const double g = load(args.d_dst, base + c) * load(args.weight, c);
      mean_g += g;
      mean_gx += g * (load(args.src, base + c) - mean) * rstd;
    }
    mean_g = args.kind == NormKind::layer ? mean_g / static_cast<double>(hidden) : 0.0;
    mean_gx /= static_cast<double>(hidden);
    for (std::int64_t c = 0; c < hidden; ++c) {
      const double g = load(args.d_dst, base + c) * load(args.weight, c);
      const double xhat = (load(args.src, base + c) - mean) * rstd;
      double d = rstd * (g - mean_g - xhat * mean_gx);
      if (!args.d_residual.empty()) d += load(args.d_residual, base + c);
      store(args.d_src, base + c, d);
    }
  });
}

void run_reference(const ActivationForwardArgs& args, KernelContext&) {
  const std::int64_t ffn = args.dst.dim(1);
  parallel_for(args.dst.dim(0), [&](std::int64_t t) {
    for (std::int64_t c = 0; c < ffn; ++c) {
      if (args.gated) {
        const double gate = load(args.src, 2 * t * ffn + c);
        const double up = load(args.src, (2 * t + 1) * ffn + c);
        store(args.dst, t * ffn + c, activate(args.kind, gate).value * up);
      } else {
        store(args.dst, t * ffn + c, activate(args.kind, load(args.src, t * ffn + c)).value);
      }
    }
  });
}

void run_reference(const ActivationBackwardArgs& args, KernelContext&) {
  const std::int64_t ffn = args.d_dst.dim(1);
  parallel_for(args.d_dst.dim(0), [&](std::int64_t t) {
    for (std::int64_t c = 0; c < ffn; ++c) {
      const double d = load(args.d_dst, t * ffn + c);
      if (args.gated) {
        const std::int64_t gate_index = 2 * t * ffn + c;
        const auto [value, slope] = activate(args.kind, load(args.src, gate_index));
        const double up = load(args.src, gate_index + ffn);
        store(args.d_src, gate_index, d * up * slope);
        store(args.d_src, gate_index + ffn, d * value);
      } else {
        const double slope = activate(args.kind, load(args.src, t * ffn + c)).slope;
        store(args.d_src, t * ffn + c, d * slope);
      }
    }
  });
}

void run_reference(const CrossEntropyArgs& args, KernelContext&) {
  const std::int64_t vocab = args.logits.dim(1);
  parallel_for(args.logits.dim(0), [&](std::int64_t r) {
    const std::int64_t base = r * vocab;
    const std::int32_t target = args.targets.as<std::int32_t>()[r];
    double largest = load(args.logits, base);
    for (std::int64_t c = 1; c < vocab; ++c)
      largest = std::max(largest, load(args.logits, base + c));
    double sum = 0;
    for (std::int64_t c = 0; c < vocab; ++c) sum += std::exp(load(args.logits, base + c) - largest);
    const double lse = largest + std::log(sum);
    store(args.nll, r, target < 0 ? 0.0 : lse - load(args.logits, base + target));
    if (args.d_logits.empty()) return;
    const double scale = target < 0 ? 0.0 : static_cast<double>(args.scale);
    const double slope = 1.0 + 2.0 * static_cast<double>(args.z_loss) * lse;
    for (std::int64_t c = 0; c < vocab; ++c) {
      if (target < 0) {
        store(args.d_logits, base + c, 0.0);
        continue;
      }
      const double softmax = std::exp(load(args.logits, base + c) - lse);
      store(args.d_logits, base + c, scale * (slope * softmax - (c == target ? 1.0 : 0.0)));
    }
  });
}

}  // namespace belay
