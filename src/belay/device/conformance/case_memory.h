#pragma once
// Where one conformance case lays out its operands. The same builder function runs several times
// over the same layout: with host memory and the case's own dtypes, with device addresses (nothing
// is read or written then), and with every floating type widened to f64 for the exact reference.
// Values depend only on the operand's place in the case, and are rounded to the case's dtype in
// every run, so all runs start from equal numbers.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "belay/base/tensor.h"
#include "belay/device/kernel.h"
#include "belay/device/reference/kernels.h"

namespace belay::conformance {

// A value from its index and a uniform draw in [0, 1).
using Values = std::function<double(std::int64_t index, double draw)>;
Values between(double low, double high);
Values constant(double value);
// Integers in [begin, end).
Values integers(std::int64_t begin, std::int64_t end);
// Multiples of `step` in [low, high).
Values multiples(double step, double low, double high);
// The given values, over and over.
Values listed(std::vector<double> values);

enum class Role { input, output, inout };

struct Operand {
  std::string name;
  std::size_t offset = 0;  // bytes from the base
  DType dtype = DType::f32;
  Shape shape;
  Role role = Role::input;
};

class CaseMemory {
 public:
  enum class Mode {
    addresses,  // hands out base + offset and touches nothing
    host,       // fills the operands at the host memory `base`
    exact,      // the same values as f64 in memory of its own
  };

  CaseMemory(Mode mode, std::byte* base, std::size_t size);
  // The operands of the kernel under test. Outputs start as garbage.
  Tensor input(std::string_view name, DType dtype, const Shape& shape,
               const Values& values = between(-1, 1));
  Tensor output(std::string_view name, DType dtype, const Shape& shape);
  Tensor inout(std::string_view name, DType dtype, const Shape& shape,
               const Values& values = between(-1, 1));
  // This input is overwritten: an output aliases it.
  void mark_written(const Tensor& tensor);
  // Starts later operands this many elements past a 128-byte boundary.
  void set_misalignment(std::int64_t elements) { misalignment_ = elements; }
  // Fills operands that another operator computes, by running its reference kernel now.
  template <class Args>
  void derive(const Args& args) {
    if (mode_ == Mode::addresses) return;
    KernelContext none;
    run_reference(args, none);
  }

  [[nodiscard]] const std::vector<Operand>& operands() const { return operands_; }
  [[nodiscard]] std::size_t used() const { return used_; }
  [[nodiscard]] Tensor tensor(std::size_t operand) const;

 private:
  Tensor add(std::string_view name, DType dtype, const Shape& shape, Role role,
             const Values* values);

  Mode mode_;
  std::byte* base_;
  std::size_t size_;
  std::size_t used_ = 0;
  std::int64_t misalignment_ = 0;
  std::vector<Operand> operands_;
  std::vector<std::vector<std::byte>> exact_;  // Mode::exact: one block per operand
};

}  // namespace belay::conformance
