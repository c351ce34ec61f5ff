#include <array>

#include "belay/device/cpu/attention/tiles.h"
#include "belay/device/cpu/kernels.h"

namespace belay {
namespace attention {
namespace {

bool storable(DType dtype) {
  return dtype == DType::f32 || dtype == DType::bf16;
}

template <class Args>
const char* declines_common(const Args& args) {
  if (!storable(args.q.dtype)) return "storage is neither f32 nor bf16";
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

}  // namespace

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

namespace {

const char* declines_rotary(const RotaryArgs& args) {
  if (!storable(args.rows.dtype)) return "storage is neither f32 nor bf16";
  if (args.table.dtype != DType::f32) return "table is not f32";
  return nullptr;
}

}  // namespace
}  // namespace attention

Candidates<AttentionForwardArgs> cpu_candidates(OpTag<AttentionForwardArgs>) {
  static constexpr std::array kList = {
      Candidate<AttentionForwardArgs>{"flash", attention::declines_forward,
                                      attention::forward_workspace, attention::run_forward},
      kReferenceKernel<AttentionForwardArgs>};
  return kList;
}

Candidates<AttentionBackwardArgs> cpu_candidates(OpTag<AttentionBackwardArgs>) {
  static constexpr std::array kList = {
      Candidate<AttentionBackwardArgs>{"flash", attention::declines_backward,
                                       attention::backward_workspace, attention::run_backward},
      kReferenceKernel<AttentionBackwardArgs>};
  return kList;
}

Candidates<RotaryArgs> cpu_candidates(OpTag<RotaryArgs>) {
  static constexpr std::array kList = {
      Candidate<RotaryArgs>{"simd", attention::declines_rotary, nullptr, attention::run_rotary},
      kReferenceKernel<RotaryArgs>};
  return kList;
}

}  // namespace belay
