#pragma once
// For tests: runs every kernel of an operator on the cases of a golden file.

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "belay/device/for_each_kernel.h"
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
    expect(actual, name, tolerance_of(actual.dtype));
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

// Calls body(operands, run) for every kernel of Args; see for_each_kernel.
template <class Args, class Body>
void each_kernel_of_case(const GoldenFile& file, const std::string& name, Body&& body) {
  for_each_kernel<Args>(name, [&](auto&& run) {
    Operands operands(file, name);
    body(operands, run);
  });
}

template <class Args, class Body>
void each_kernel(const GoldenFile& file, Body&& body) {
  ASSERT_FALSE(file.cases().empty());
  for (const std::string& name : file.cases()) each_kernel_of_case<Args>(file, name, body);
}

}  // namespace belay
