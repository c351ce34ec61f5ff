#pragma once
// How an operator finds its code. Every operator is one Args struct (device/ops/) with
//   static constexpr std::string_view kName;
//   Cost cost() const;             FLOPs and bytes that the mathematics needs
//   void check() const;            asserts shapes and dtypes
// and, per device, a list of candidates: fastest first, plain reference last.

#include <array>
#include <cstddef>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>

#include "belay/base/check.h"

namespace belay {

struct Cost {
  double flops = 0;  // one multiply-add = 2
  double bytes = 0;  // each operand once: compulsory traffic
};

// What a kernel may use besides its operands.
struct KernelContext {
  std::byte* workspace = nullptr;  // at least what the candidate's workspace() asked for
  std::size_t workspace_bytes = 0;
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
  Cost cost;
  std::size_t workspace = 0;
  void (*invoke)(const OpCall&, KernelContext&) = nullptr;
  void (*run)() = nullptr;
  alignas(std::max_align_t) std::array<std::byte, kMaxArgs> args;

  template <class Args>
  [[nodiscard]] const Args& as() const {
    return *reinterpret_cast<const Args*>(args.data());
  }
};

template <class Args>
OpCall make_call(const Args& args, const Candidate<Args>& candidate) {
  static_assert(std::is_trivially_copyable_v<Args> && sizeof(Args) <= OpCall::kMaxArgs);
  OpCall call;
  call.op = Args::kName;
  call.kernel = candidate.name;
  call.cost = args.cost();
  call.workspace = candidate.workspace != nullptr ? candidate.workspace(args) : 0;
  call.run = reinterpret_cast<void (*)()>(candidate.run);
  call.invoke = [](const OpCall& self, KernelContext& context) {
    reinterpret_cast<void (*)(const Args&, KernelContext&)>(self.run)(self.as<Args>(), context);
  };
  std::memcpy(call.args.data(), &args, sizeof(Args));
  return call;
}

}  // namespace belay
