// Normalisation by separate passes: the residual addition, the statistics, the normalised values
// (kept for the backward pass), scale and shift.

#include "belay/device/plain/workbench.h"

namespace belay::plain {
namespace {

// The mean of every row, in place of its sum.
void divide(const Tensor& sums, std::int64_t width) {
  affine(all(sums), 1.0F / static_cast<float>(width), 0.0F, all(sums));
}

}  // namespace

Composition compose(const Bench& bench, const NormForwardArgs& args) {
  Composition composition;
  Workbench work(bench, composition);
  const Tensor xhat = work.keep(args.src.dtype, args.src.shape);
  composition.run = [=, lane = &bench.lane] {
    Tensor x = args.src;
    if (!args.sum.empty()) {
      launch(*lane, AddArgs{args.src, args.residual, args.sum});
      lane->wait();
      x = args.sum;
    }
    const float* mean = nullptr;
    if (!args.mean.empty()) {
      row_sum(all(x), args.mean.as<float>());
      divide(args.mean, x.dim(1));
      mean = args.mean.as<float>();
    }
    row_rstd(all(x), mean, args.eps, args.rstd.as<float>());
    normalise_rows(all(x), mean, args.rstd.as<float>(), all(xhat));
    multiply_columns(all(xhat), args.weight.as<float>(), all(args.dst));
    if (!args.bias.empty()) add_columns(all(args.dst), args.bias.as<float>(), all(args.dst));
  };
  return composition;
}

// With xhat = (x - mean) rstd and g = d_dst weight:
//   d_x = rstd (g - mean(g) - xhat mean(g xhat)), without mean(g) for rms.
Composition compose(const Bench& bench, const NormBackwardArgs& args) {
  Composition composition;
  Workbench work(bench, composition);
  const DType dtype = args.src.dtype;
  const Tensor xhat = work.keep(dtype, args.src.shape);
  const Tensor g = work.scratch(dtype, args.src.shape);
  const Tensor product = work.scratch(dtype, args.src.shape);
  const Tensor g_mean = work.scratch(DType::f32, {args.src.dim(0)});
  const Tensor product_mean = work.scratch(DType::f32, {args.src.dim(0)});
  composition.prepare = [=] {
    normalise_rows(all(args.src), args.mean.as<float>(), args.rstd.as<float>(), all(xhat));
  };
  composition.run = [=, lane = &bench.lane] {
    const std::int64_t width = args.src.dim(1);
    if (!args.d_bias.empty()) launch(*lane, ColumnSumArgs{args.d_dst, args.d_bias});
    combine(Binary::multiply, all(args.d_dst), all(xhat), all(product));
    launch(*lane, ColumnSumArgs{product, args.d_weight});
    lane->wait();
    multiply_columns(all(args.d_dst), args.weight.as<float>(), all(g));
    combine(Binary::multiply, all(g), all(xhat), all(product));
    row_sum(all(product), product_mean.as<float>());
    divide(product_mean, width);
    normalise_rows(all(xhat), nullptr, product_mean.as<float>(), all(product));
    const float* centre = nullptr;
    if (args.kind == NormKind::layer) {
      row_sum(all(g), g_mean.as<float>());
      divide(g_mean, width);
      centre = g_mean.as<float>();
    }
    combine(Binary::subtract, all(g), all(product), all(g));
    const Tensor& last = args.d_residual.empty() ? args.d_src : g;
    normalise_rows(all(g), centre, args.rstd.as<float>(), all(last));
    if (!args.d_residual.empty()) {
      launch(*lane, AddArgs{last, args.d_residual, args.d_src});
      lane->wait();
    }
  };
  return composition;
}

}  // namespace belay::plain
