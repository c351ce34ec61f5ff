#include <hwy/detect_targets.h>
#include <array>

#include "belay/device/cpu/attention/kernels.h"
#include "belay/device/cpu/kernels.h"

namespace belay {
namespace attention {
namespace {

template <class Args>
const char* declines_common(const Args& args) {
  if (!is_storage(args.q.dtype)) return "storage is not f32, bf16 or f16";
  if (args.k.dtype != args.q.dtype || args.v.dtype != args.q.dtype ||
      args.dst.dtype != args.q.dtype) {
    return "q, k, v and dst differ in dtype";
  }
  if (args.shape.head_dim > kMaxHeadDim) return "head_dim above 256";
  // The running maximum of raw scores is the maximum of scaled scores only then.
  if (!(args.shape.scale > 0.0F)) return "scale is not positive";
  if (!args.doc_begin.empty() && args.doc_begin.dtype != DType::i32) return "doc_begin is not i32";
  return nullptr;
}

const char* declines_forward(const AttentionForwardArgs& args) {
  if (!args.lse.empty() && args.lse.dtype != DType::f32) return "lse is not f32";
  return declines_common(args);
}

const char* declines_backward(const AttentionBackwardArgs& args) {
  if (args.lse.dtype != DType::f32) return "lse is not f32";
  const DType dtype = args.q.dtype;
  if (args.d_dst.dtype != dtype || args.d_q.dtype != dtype || args.d_k.dtype != dtype ||
      args.d_v.dtype != dtype) {
    return "gradients differ from q in dtype";
  }
  return declines_common(args);
}

const char* declines_decode(const AttentionForwardArgs& args) {
  if (args.shape.q_len != 1) return "more than one query per row";
  if (args.inside != Inside::full) return "scores are not f32";
  return declines_forward(args);
}

const char* declines_pairs(DType dtype) {
  if (dtype != DType::bf16) return "storage is not bf16";
  if (!has_pair_products()) return "processor without avx512_bf16";
  return nullptr;
}

const char* declines_forward_bf16(const AttentionForwardArgs& args) {
  if (args.inside != Inside::full) return "scores are not f32";
  const char* reason = declines_pairs(args.q.dtype);
  return reason != nullptr ? reason : declines_forward(args);
}

const char* declines_backward_bf16(const AttentionBackwardArgs& args) {
  if (args.inside != Inside::full) return "scores are not f32";
  const char* reason = declines_pairs(args.q.dtype);
  return reason != nullptr ? reason : declines_backward(args);
}

const char* declines_rotary(const RotaryArgs& args) {
  if (!is_storage(args.rows.dtype)) return "storage is not f32, bf16 or f16";
  if (args.table.dtype != DType::f32) return "table is not f32";
  return nullptr;
}

}  // namespace

bool has_pair_products() {
#if HWY_ARCH_X86
  return __builtin_cpu_supports("avx512bf16") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
         __builtin_cpu_supports("avx512vl") != 0 && __builtin_cpu_supports("avx512dq") != 0;
#else
  return false;
#endif
}

}  // namespace attention

Candidates<AttentionForwardArgs> cpu_candidates(OpTag<AttentionForwardArgs>) {
  static constexpr std::array kList = {
      Candidate<AttentionForwardArgs>{"decode", attention::declines_decode,
                                      attention::decode_workspace, attention::run_decode},
      Candidate<AttentionForwardArgs>{"flash_bf16", attention::declines_forward_bf16,
                                      attention::forward_bf16_workspace,
                                      attention::run_forward_bf16},
      Candidate<AttentionForwardArgs>{"flash", attention::declines_forward,
                                      attention::forward_workspace, attention::run_forward},
      kReferenceKernel<AttentionForwardArgs>};
  return kList;
}

Candidates<AttentionBackwardArgs> cpu_candidates(OpTag<AttentionBackwardArgs>) {
  static constexpr std::array kList = {
      Candidate<AttentionBackwardArgs>{"flash_bf16", attention::declines_backward_bf16,
                                       attention::backward_bf16_workspace,
                                       attention::run_backward_bf16},
      Candidate<AttentionBackwardArgs>{"flash", attention::declines_backward,
                                       attention::backward_workspace, attention::run_backward},
      kReferenceKernel<AttentionBackwardArgs>};
  return kList;
}

Candidates<ScatterRowsArgs> cpu_candidates(OpTag<ScatterRowsArgs>) {
  static constexpr std::array kList = {
      Candidate<ScatterRowsArgs>{"copy", nullptr, nullptr, attention::run_scatter_rows},
      kReferenceKernel<ScatterRowsArgs>};
  return kList;
}

Candidates<RotaryArgs> cpu_candidates(OpTag<RotaryArgs>) {
  static constexpr std::array kList = {
      Candidate<RotaryArgs>{"simd", attention::declines_rotary, nullptr, attention::run_rotary},
      kReferenceKernel<RotaryArgs>};
  return kList;
}

}  // namespace belay
