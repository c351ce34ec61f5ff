#include "belay/device/cpu/matmul/blas.h"

#include <cblas.h>
#include <oneapi/dnnl/dnnl.h>

#include <algorithm>
#include <limits>

#include "belay/base/error.h"
#include "belay/base/parallel.h"

namespace belay {
namespace {

// Returns the beta that the product must use after the bias is in place.
float place_bias(const MatmulArgs& args) {
  if (args.bias.empty()) return args.accumulate ? 1.0F : 0.0F;
  const std::int64_t n = args.n();
  const float* bias = args.bias.as<float>();
  constexpr std::int64_t kRows = 16;
  parallel_for(pieces_of(args.m(), kRows), [&](std::int64_t piece) {
    const std::int64_t end = std::min(args.m(), (piece + 1) * kRows);
    for (std::int64_t row = piece * kRows; row < end; ++row) {
      float* dst = args.dst.as<float>() + row * n;
      if (args.accumulate) {
        for (std::int64_t col = 0; col < n; ++col) dst[col] += bias[col];
      } else {
        std::copy_n(bias, n, dst);
      }
    }
  });
  return 1.0F;
}

}  // namespace

const char* blas_declines(const MatmulArgs& args) {
  const auto is_f32 = [](const Tensor& tensor) {
    return tensor.empty() || tensor.dtype == DType::f32;
  };
  if (!is_f32(args.a) || !is_f32(args.dst) || !is_f32(args.bias)) return "dtype is not f32";
  if (args.m() == 0 || args.n() == 0 || args.k() == 0) return "an empty operand";
  constexpr std::int64_t kMax = std::numeric_limits<int>::max();
  if (std::max({args.m(), args.n(), args.k()}) > kMax) return "a dimension exceeds 31 bits";
  return nullptr;
}

void run_openblas(const MatmulArgs& args, KernelContext&) {
  const float beta = place_bias(args);
  const auto m = static_cast<int>(args.m());
  const auto n = static_cast<int>(args.n());
  const auto k = static_cast<int>(args.k());
  cblas_sgemm(CblasRowMajor, args.transpose_a ? CblasTrans : CblasNoTrans,
              args.transpose_b ? CblasTrans : CblasNoTrans, m, n, k, 1.0F, args.a.as<float>(),
              args.transpose_a ? m : k, args.b.as<float>(), args.transpose_b ? k : n, beta,
              args.dst.as<float>(), n);
}

void run_dnnl_sgemm(const MatmulArgs& args, KernelContext&) {
  const float beta = place_bias(args);
  const dnnl_status_t status = dnnl_sgemm(
      args.transpose_a ? 'T' : 'N', args.transpose_b ? 'T' : 'N', args.m(), args.n(), args.k(),
      1.0F, args.a.as<float>(), args.transpose_a ? args.m() : args.k(), args.b.as<float>(),
      args.transpose_b ? args.k() : args.n(), beta, args.dst.as<float>(), args.n());
  if (status != dnnl_success) {
    fail(ExitCode::failure, "oneDNN: sgemm of {}x{}x{} failed with status {}", args.m(), args.n(),
         args.k(), static_cast<int>(status));
  }
}

}  // namespace belay
