#pragma once
// The conformance harness: every operator of every device against its definition in double.
// A case is a name and a builder of the operator's arguments (see case_memory.h). For each it is
// checked that
//   - results agree with the reference kernel run in f64, and are exactly 0 where that is (unless
//     the case says that zeros come about by cancellation);
//   - the same call gives the same bits again, and with any number of threads;
//   - no byte outside the written operands changes.
// A derived gradient is compared, in f64, with central differences of its forward operator.

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "belay/base/arena.h"
#include "belay/device/conformance/case_memory.h"
#include "belay/device/device.h"

namespace belay::conformance {

// Relative error allowed of a result: of the whole tensor (2-norm), and 4 times it of one element
// against the largest. By the dtype the result is stored in.
struct Tolerance {
  double f64 = 1e-12;
  double f32 = 1e-6;
  double bf16 = 3e-3;  // rounding to bf16 alone gives up to 2^-9
  double f16 = 5e-4;   // rounding to f16 alone gives up to 2^-11
  double zero = 0;     // allowed, absolutely, where the exact result is 0
};

template <class Args>
struct OpCase {
  std::string name;
  std::function<Args(CaseMemory&)> build;
  Tolerance tolerance = {};
};

// The gradient of `loss` with respect to each first tensor must be what `backward` leaves in the
// second. All tensors come from a CaseMemory in f64.
struct Gradient {
  std::function<double()> loss;  // runs the forward operator
  std::function<void()> backward;
  std::vector<std::pair<Tensor, Tensor>> inputs;
};

struct GradientCase {
  std::string op;  // kName of the operator that computes the gradient
  std::string name;
  std::function<Gradient(CaseMemory&)> build;
};

// Sum of products, in double.
double dot(const Tensor& a, const Tensor& b);

// One line per failure; empty when the case holds. `run` executes the call on an image of the
// case's memory: (image in and out, threads, workspace guard included).
using RunImage = std::function<void(std::vector<std::byte>& image)>;
std::vector<std::string> check_image(const CaseMemory& exact, const CaseMemory& host,
                                     const std::vector<std::byte>& start, const RunImage& run,
                                     const Tolerance& tolerance);
std::vector<std::string> check_gradient(const GradientCase& gradient_case);

// Every candidate of the device that takes the call, each through a lane of the device.
// `took` counts the candidates that did.
template <class Args>
std::vector<std::string> check_case(Device& device, const OpCase<Args>& op_case, int& took) {
  using Mode = CaseMemory::Mode;
  CaseMemory layout(Mode::addresses, nullptr, 0);
  op_case.build(layout);
  const std::size_t size = layout.used();
  std::vector<std::byte> image(size + kAlignment, std::byte{0xA5});
  auto* base =
      image.data() +
      (kAlignment - reinterpret_cast<std::uintptr_t>(image.data()) % kAlignment) % kAlignment;
  CaseMemory host(Mode::host, base, size);
  op_case.build(host).check();
  CaseMemory exact(Mode::exact, nullptr, 0);
  const Args exact_args = op_case.build(exact);
  KernelContext none;
  run_reference(exact_args, none);
  const std::vector<std::byte> start(base, base + size);

  const auto memory = device.allocate(size, "conformance case");
  CaseMemory on_device(Mode::addresses, static_cast<std::byte*>(memory->address()), size);
  const Args args = op_case.build(on_device);
  const auto lane = device.create_lane();
  std::vector<std::string> failures;
  for (const auto& candidate : std::get<Candidates<Args>>(device.kernels().candidates)) {
    if (candidate.declines != nullptr && candidate.declines(args) != nullptr) continue;
    ++took;
    const RunImage run = [&](std::vector<std::byte>& bytes) {
      lane->copy_in(memory->address(), bytes.data(), bytes.size());
      lane->submit(make_call(args, candidate));
      lane->copy_out(bytes.data(), memory->address(), bytes.size());
      lane->wait();
    };
    for (std::string& failure : check_image(exact, host, start, run, op_case.tolerance)) {
      failures.push_back("conformance: " + std::string(Args::kName) + " '" + op_case.name +
                         "' device " + std::string(device.name()) + " kernel " +
                         std::string(candidate.name) + ": " + failure + "; again: BELAY_CASE='" +
                         std::string(Args::kName) + "/" + op_case.name +
                         "' belay_tests --gtest_filter='*Conformance*'");
    }
  }
  return failures;
}

}  // namespace belay::conformance
