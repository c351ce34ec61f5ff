#pragma once
// For tests: runs every kernel of an operator on the cases of a golden file.

#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "belay/device/device.h"
#include "belay/device/golden_file.h"

namespace belay {

// The operands of one golden case, fresh for every kernel that runs it.
class Operands {
 public:
  Operands(const GoldenFile& file, std::string name) : file_(file), case_(std::move(name)) {}

  [[nodiscard]] const std::string& name() const { return case_; }
  [[nodiscard]] bool has(const std::string& name) const { return file_.has(full(name)); }
  Tensor input(const std::string& name) { return file_.copy(pool_, full(name)); }
  // Empty when the case has no such operand.
  Tensor optional(const std::string& name) { return has(name) ? input(name) : Tensor{}; }
  Tensor output(DType dtype, const Shape& shape) { return pool_.allocate(dtype, shape); }
  // Shaped like the golden tensor `name`.
  Tensor output_like(DType dtype, const std::string& name) {
    return output(dtype, file_.shape(full(name)));
  }
  [[nodiscard]] float number(const std::string& name) const {
    return static_cast<float>(file_.scalar(full(name)));
  }
  [[nodiscard]] std::vector<double> values(const std::string& name) const {
    return file_.values(full(name));
  }
  // Against the golden tensor `name`; the tolerance is that of the result's dtype unless given.
  void expect(const Tensor& actual, const std::string& name) const {
    expect(actual, name, actual.dtype == DType::bf16 ? kBf16Tolerance : kF32Tolerance);
  }
  void expect(const Tensor& actual, const std::string& name, const Tolerance& tolerance) const {
    expect_close(to_doubles(actual), values(name), tolerance, name);
  }

 private:
  [[nodiscard]] std::string full(const std::string& name) const { return case_ + "/" + name; }

  const GoldenFile& file_;
  std::string case_;
  HostPool pool_;
};

inline bool begins_with(const std::string& text, std::string_view prefix) {
  return text.compare(0, prefix.size(), prefix) == 0;
}

// Calls body(operands, run) for every kernel of Args. run(args) returns false when the kernel
// declines. Each device must have a kernel that takes the case.
template <class Args, class Body>
void each_kernel_of_case(const GoldenFile& file, const std::string& name, Body&& body) {
  for (const char* device_name : {"reference", "cpu"}) {
    const auto device = make_device(device_name);
    int taken = 0;
    for (const auto& kernel : std::get<Candidates<Args>>(device->kernels().candidates)) {
      SCOPED_TRACE(name + ", " + device_name + " kernel " + std::string(kernel.name));
      Operands operands(file, name);
      body(operands, [&](const Args& args) {
        args.check();
        if (kernel.declines != nullptr && kernel.declines(args) != nullptr) return false;
        ++taken;
        HostPool pool;
        const std::size_t bytes = kernel.workspace != nullptr ? kernel.workspace(args) : 0;
        const Tensor scratch = pool.allocate(DType::u8, {static_cast<std::int64_t>(bytes)});
        KernelContext context{scratch.as<std::byte>(), bytes};
        kernel.run(args, context);
        return true;
      });
    }
    EXPECT_GT(taken, 0) << name << ": every kernel of " << device_name << " declines";
  }
}

template <class Args, class Body>
void each_kernel(const GoldenFile& file, Body&& body) {
  ASSERT_FALSE(file.cases().empty());
  for (const std::string& name : file.cases()) each_kernel_of_case<Args>(file, name, body);
}

}  // namespace belay
