#pragma once
// How an operator finds its code. Every operator is one Args struct (device/ops/) with
//   static constexpr std::string_view kName;
//   Cost cost() const;             FLOPs and bytes that the mathematics needs
//   void check() const;            asserts shapes and dtypes
//   DType arithmetic() const;      f32 where the operator computes in full precision whatever its
//                                  operands are stored as (statistics, sums, the optimizer), else
//                                  the storage of its operands
//   void each_result(visit) const; calls visit(name, Tensor or Rows) for everything it writes
// and, per device, a list of candidates: fastest first, plain reference last.

#include <array>
#include <cstddef>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>

#include "belay/base/check.h"
#include "belay/base/tensor.h"

namespace belay {

struct Cost {
  double flops = 0;  // one multiply-add = 2
  double bytes = 0;  // each operand once: compulsory traffic
};

// What becomes of an f16 result beyond the largest finite value.
enum class Overflow : std::uint8_t {
  infinity,  // it is infinite (IEEE 754)
  saturate,  // it is +-65504, and 0 instead of NaN: nothing but a flag tells, as on older
             // accelerators
};

// What a kernel may use besides its operands.
struct KernelContext {
  std::byte* workspace = nullptr;  // at least what the candidate's workspace() asked for
  std::size_t workspace_bytes = 0;
  // Kernels write infinities; whoever runs them settles f16 results accordingly afterwards. Only a
  // kernel that reads again what it has written needs to know.
  Overflow overflow = Overflow::infinity;
  bool overflowed = false;  // set by such a kernel
};

// Sees the results of a call, those that it has.
class ResultVisitor {
 public:
  ResultVisitor() = default;
  virtual ~ResultVisitor() = default;
  ResultVisitor(const ResultVisitor&) = delete;
  ResultVisitor& operator=(const ResultVisitor&) = delete;
  virtual void result(std::string_view name, const Rows& rows) = 0;
};

template <class Args>
struct Candidate {
  std::string_view name;
  // Returns nullptr when the candidate takes this call, else why not. May be null: takes all.
  const char* (*declines)(const Args&) = nullptr;
  // Bytes of scratch the call needs (128-byte aligned). May be null: none.
  std::size_t (*workspace)(const Args&) = nullptr;
  void (*run)(const Args&, KernelContext&) = nullptr;
};

template <class Args>
using Candidates = std::span<const Candidate<Args>>;

template <class Args>
struct OpTag {};

// One operator call as data: trivially copyable, so a lane may run it now or keep it for later
// without touching the heap.
struct OpCall {
  static constexpr std::size_t kMaxArgs = 640;

  std::string_view op;
  std::string_view kernel;
  std::string_view tag;  // what the call is part of; see Lane::set_tag
  int layer = -1;        // likewise; see Lane::set_layer
  DType arithmetic = DType::f32;
  Cost cost;
  std::size_t workspace = 0;
  void (*invoke)(const OpCall&, KernelContext&) = nullptr;
  void (*visit_results)(const OpCall&, ResultVisitor&) = nullptr;
  void (*run)() = nullptr;
  alignas(std::max_align_t) std::array<std::byte, kMaxArgs> args;

  template <class Args>
  [[nodiscard]] const Args& as() const {
    return *reinterpret_cast<const Args*>(args.data());
  }
};

namespace detail {

inline void show(ResultVisitor& visitor, std::string_view name, const Rows& rows) {
  if (rows.data != nullptr) visitor.result(name, rows);
}
inline void show(ResultVisitor& visitor, std::string_view name, const Tensor& tensor) {
  const std::int64_t elements = tensor.elements();
  show(visitor, name, Rows{tensor.data, tensor.dtype, 1, elements, elements});
}

}  // namespace detail

template <class Args>
OpCall make_call(const Args& args, const Candidate<Args>& candidate) {
  static_assert(std::is_trivially_copyable_v<Args> && sizeof(Args) <= OpCall::kMaxArgs);
  OpCall call;
  call.op = Args::kName;
  call.kernel = candidate.name;
  call.arithmetic = args.arithmetic();
  call.cost = args.cost();
  call.workspace = candidate.workspace != nullptr ? candidate.workspace(args) : 0;
  call.run = reinterpret_cast<void (*)()>(candidate.run);
  call.invoke = [](const OpCall& self, KernelContext& context) {
    reinterpret_cast<void (*)(const Args&, KernelContext&)>(self.run)(self.as<Args>(), context);
  };
  call.visit_results = [](const OpCall& self, ResultVisitor& visitor) {
    self.as<Args>().each_result(
        [&](std::string_view name, const auto& result) { detail::show(visitor, name, result); });
  };
  std::memcpy(call.args.data(), &args, sizeof(Args));
  return call;
}

}  // namespace belay
