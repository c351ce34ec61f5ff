#include "belay/device/cpu/matmul/candidates.h"

#include <cblas.h>
#include <fmt/core.h>
#include <oneapi/dnnl/dnnl.h>

#include <array>
#include <fstream>

#include "belay/base/parallel.h"
#include "belay/device/cpu/kernels.h"
#include "belay/device/cpu/matmul/blas.h"
#include "belay/device/cpu/matmul/gemm.h"
#include "belay/device/cpu/matmul/onednn.h"
#include "belay/device/cpu/matmul/rows.h"

namespace belay {

Candidates<MatmulArgs> cpu_candidates(OpTag<MatmulArgs>) {
  static constexpr std::array<Candidate<MatmulArgs>, 7> kCandidates{{
      {"belay-rows", rows_declines, rows_workspace, run_rows},
      {"belay", gemm_declines, gemm_workspace, run_gemm},
      {"onednn", onednn_declines, onednn_workspace, run_onednn},
      {"onednn-packed", onednn_packed_declines, onednn_packed_workspace, run_onednn_packed},
      {"openblas", blas_declines, nullptr, run_openblas},
      {"dnnl-sgemm", blas_declines, nullptr, run_dnnl_sgemm},
      kReferenceKernel<MatmulArgs>,
  }};
  return kCandidates;
}

std::string cpu_matmul_identity() {
  std::string model = "unknown processor";
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    const std::size_t colon = line.find(':');
    if (line.starts_with("model name") && colon != std::string::npos && colon + 2 < line.size()) {
      model = line.substr(colon + 2);
      break;
    }
  }
  const dnnl_version_t* version = dnnl_version();
  return fmt::format("{}, {} threads, oneDNN {}.{}.{}, {}", model, thread_count(), version->major,
                     version->minor, version->patch, openblas_get_config());
}

}  // namespace belay
