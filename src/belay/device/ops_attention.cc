// Attention as a benchmark: GPT-2 124M's 12 heads of 64 over 4096 tokens, in rows of one length or
// another, each one document or several.

#include <fmt/core.h>

#include "belay/device/ops_workloads.h"

namespace belay {
namespace {

constexpr std::int64_t kTokens = 4096;
constexpr std::int64_t kHidden = 768;
constexpr std::int64_t kHeads = 12;

struct RowsOf {
  std::int64_t seq;
  std::int64_t document;  // tokens; seq: one a row

  [[nodiscard]] std::string shape() const {
    const std::string rows =
        fmt::format("{}x{} {}x{}", kTokens / seq, seq, kHeads, kHidden / kHeads);
    return document == seq ? rows : fmt::format("{} documents of {}", rows, document);
  }
  // Of the pairs that a row has as one document.
  [[nodiscard]] double visible() const {
    return static_cast<double>(document + 1) / static_cast<double>(seq + 1);
  }
};

AttentionForwardArgs attention_forward(BenchOperands& operands, DType dtype, const RowsOf& rows) {
  const std::int64_t seq = rows.seq;
  const Tensor qkv = operands.real(dtype, {kTokens, 3 * kHidden});
  AttentionForwardArgs args;
  args.shape = {kTokens / seq, seq, seq, kHeads, kHeads, kHidden / kHeads, 0.125F};
  args.q = columns(qkv, 0, kHidden);
  args.k = columns(qkv, kHidden, 2 * kHidden);
  args.v = columns(qkv, 2 * kHidden, 3 * kHidden);
  if (rows.document != seq) args.doc_begin = operands.document_starts(kTokens, seq, rows.document);
  args.dst = operands.real(dtype, {kTokens, kHidden});
  args.lse = operands.real(DType::f32, {kTokens / seq, kHeads, seq}, 5, 6);
  return args;
}

AttentionBackwardArgs attention_backward(BenchOperands& operands, DType dtype, const RowsOf& rows) {
  const AttentionForwardArgs forward = attention_forward(operands, dtype, rows);
  const Tensor d_qkv = operands.real(dtype, {kTokens, 3 * kHidden});
  AttentionBackwardArgs args;
  args.shape = forward.shape;
  args.q = forward.q;
  args.k = forward.k;
  args.v = forward.v;
  args.doc_begin = forward.doc_begin;
  args.dst = forward.dst;
  args.lse = forward.lse;
  args.d_dst = operands.real(dtype, {kTokens, kHidden});
  args.d_q = columns(d_qkv, 0, kHidden);
  args.d_k = columns(d_qkv, kHidden, 2 * kHidden);
  args.d_v = columns(d_qkv, 2 * kHidden, 3 * kHidden);
  return args;
}

template <class Args>
BenchJob job_of(Lane& lane, const Device& device, const Args& args, const RowsOf& rows) {
  args.check();
  const OpCall call = make_call(args, select_kernel(device, args));
  BenchJob job{call.kernel, call.cost, call.workspace, {}, {}};
  job.cost.flops *= rows.visible();
  job.run = [&lane, call] {
    lane.submit(call);
    lane.wait();
  };
  job.plain = [call](const plain::Bench& bench) { return plain::compose(bench, call); };
  return job;
}

}  // namespace

std::vector<BenchWorkload> attention_workloads(const Device& device) {
  std::vector<BenchWorkload> list;
  for (const RowsOf& rows : {RowsOf{1024, 1024}, RowsOf{4096, 4096}, RowsOf{1024, 128}}) {
    list.push_back({AttentionForwardArgs::kName, rows.shape(), false,
                    [&device, rows](BenchOperands& operands, DType dtype) {
                      return job_of(operands.lane(), device,
                                    attention_forward(operands, dtype, rows), rows);
                    }});
    list.push_back({AttentionBackwardArgs::kName, rows.shape(), false,
                    [&device, rows](BenchOperands& operands, DType dtype) {
                      return job_of(operands.lane(), device,
                                    attention_backward(operands, dtype, rows), rows);
                    }});
  }
  return list;
}

}  // namespace belay
