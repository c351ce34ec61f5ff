// Reference: matrix product, embedding, elementwise operators, reductions, AdamW.

#include <algorithm>
#include <cmath>

#include "belay/base/parallel.h"
#include "belay/device/reference/element.h"
#include "belay/device/reference/kernels.h"

namespace belay {

void run_reference(const MatmulArgs& args, KernelContext&) {
  const std::int64_t m = args.m();
  const std::int64_t n = args.n();
  const std::int64_t k = args.k();
  parallel_for(m, [&](std::int64_t row) {
    for (std::int64_t col = 0; col < n; ++col) {
      double sum = args.bias.empty() ? 0.0 : load(args.bias, col);
      for (std::int64_t i = 0; i < k; ++i) {
        const double a = load(args.a, args.transpose_a ? i * m + row : row * k + i);
        const double b = load(args.b, args.transpose_b ? col * k + i : i * n + col);
        sum += a * b;
      }
      const std::int64_t index = row * n + col;
      store(args.dst, index, args.accumulate ? load(args.dst, index) + sum : sum);
    }
  });
}

void run_reference(const EmbeddingForwardArgs& args, KernelContext&) {
  const std::int64_t hidden = args.dst.dim(1);
  for (std::int64_t t = 0; t < args.dst.dim(0); ++t) {
    const std::int64_t token = args.tokens.as<std::int32_t>()[t];
    for (std::int64_t c = 0; c < hidden; ++c) {
      double value = load(args.table, token * hidden + c);
      if (!args.positions.empty()) {
        const std::int64_t position = args.positions.as<std::int32_t>()[t];
        value += load(args.positions_table, position * hidden + c);
      }
      store(args.dst, t * hidden + c, value);
    }
  }
}

void run_reference(const EmbeddingBackwardArgs& args, KernelContext&) {
  const std::int64_t hidden = args.d_dst.dim(1);
  const auto add = [&](const Tensor& table, std::int64_t row, std::int64_t t) {
    for (std::int64_t c = 0; c < hidden; ++c) {
      const std::int64_t index = row * hidden + c;
      store(table, index, load(table, index) + load(args.d_dst, t * hidden + c));
    }
  };
  for (std::int64_t t = 0; t < args.d_dst.dim(0); ++t) {
    add(args.d_table, args.tokens.as<std::int32_t>()[t], t);
    if (!args.d_positions_table.empty()) {
      add(args.d_positions_table, args.positions.as<std::int32_t>()[t], t);
    }
  }
}

void run_reference(const FillArgs& args, KernelContext&) {
  for (std::int64_t i = 0; i < args.dst.elements(); ++i) store(args.dst, i, args.value);
}

void run_reference(const CastArgs& args, KernelContext&) {
  for (std::int64_t i = 0; i < args.dst.elements(); ++i) store(args.dst, i, load(args.src, i));
}

void run_reference(const AddArgs& args, KernelContext&) {
  for (std::int64_t i = 0; i < args.dst.elements(); ++i) {
    store(args.dst, i, load(args.a, i) + load(args.b, i));
  }
}

void run_reference(const DropoutArgs& args, KernelContext&) {
  const double keep_scale = 1.0 / (1.0 - static_cast<double>(args.probability));
  for (std::int64_t i = 0; i < args.dst.elements(); ++i) {
    const std::uint64_t element = args.first_element + static_cast<std::uint64_t>(i);
    const std::uint32_t word = random_block(args.key, element / 4)[element % 4];
    const bool keep = uniform(word) >= args.probability;
    store(args.dst, i, keep ? load(args.src, i) * keep_scale : 0.0);
  }
}

void run_reference(const ColumnSumArgs& args, KernelContext&) {
  const std::int64_t columns = args.src.dim(1);
  parallel_for(columns, [&](std::int64_t c) {
    double sum = 0;
    for (std::int64_t r = 0; r < args.src.dim(0); ++r) sum += load(args.src, r * columns + c);
    store(args.dst, c, load(args.dst, c) + kept_inside(sum, args.src.dtype, args.inside));
  });
}

void run_reference(const SumArgs& args, KernelContext&) {
  double sum = args.dst.as<double>()[0];
  for (std::int64_t i = 0; i < args.src.elements(); ++i) sum += load(args.src, i);
  args.dst.as<double>()[0] = sum;
}

void run_reference(const SumOfSquaresArgs& args, KernelContext&) {
  const std::int64_t count = args.src.elements();
  const std::int64_t piece = args.piece == 0 ? std::max<std::int64_t>(1, count) : args.piece;
  for (std::int64_t j = 0; j < args.pieces(); ++j) {
    double sum = 0;
    for (std::int64_t i = j * piece; i < std::min(count, (j + 1) * piece); ++i) {
      const double value = load(args.src, i);
      sum += value * value;
    }
    args.dst.as<double>()[j] = sum;
  }
}

void run_reference(const AdamwArgs& args, KernelContext&) {
  const double lr = static_cast<double>(args.lr);
  const double beta1 = static_cast<double>(args.beta1);
  const double beta2 = static_cast<double>(args.beta2);
  parallel_for(pieces_of(args.weights.elements(), 4096), [&](std::int64_t piece) {
    const std::int64_t end = std::min(args.weights.elements(), (piece + 1) * 4096);
    for (std::int64_t i = piece * 4096; i < end; ++i) {
      const double grad = load(args.grad, i) * args.grad_scale;
      const double m = beta1 * load(args.m, i) + (1 - beta1) * grad;
      const double v = beta2 * load(args.v, i) + (1 - beta2) * grad * grad;
      double w = load(args.weights, i);
      w -= lr * static_cast<double>(args.weight_decay) * w;
      w -= lr * (m / static_cast<double>(args.correction1)) /
           (std::sqrt(v / static_cast<double>(args.correction2)) + static_cast<double>(args.eps));
      store(args.m, i, m);
      store(args.v, i, v);
      store(args.weights, i, w);
      store(args.grad, i, 0.0);
      if (!args.copy.empty()) store(args.copy, i, load(args.weights, i));
    }
  });
}

}  // namespace belay
