#include "belay/device/conformance/case_memory.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "belay/base/arena.h"
#include "belay/base/philox.h"
#include "belay/device/reference/element.h"

namespace belay::conformance {
namespace {

bool is_floating(DType dtype) {
  return dtype == DType::f64 || dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16;
}

double draw(std::size_t operand, std::int64_t index) {
  const RandomKey key{20260101, static_cast<std::uint32_t>(operand), 0};
  return static_cast<double>(uniform(random_block(key, static_cast<std::uint64_t>(index))[0]));
}

double rounded(DType dtype, double value) {
  alignas(8) std::byte element[8];
  store(element, dtype, 0, value);
  return load(element, dtype, 0);
}

}  // namespace

Values between(double low, double high) {
  return [=](std::int64_t, double u) { return low + (high - low) * u; };
}

Values constant(double value) {
  return [=](std::int64_t, double) { return value; };
}

Values integers(std::int64_t begin, std::int64_t end) {
  return [=](std::int64_t, double u) {
    return static_cast<double>(begin) + std::floor(u * static_cast<double>(end - begin));
  };
}

Values multiples(double step, double low, double high) {
  return [=](std::int64_t, double u) { return low + step * std::floor(u * (high - low) / step); };
}

Values listed(std::vector<double> values) {
  return [values = std::move(values)](std::int64_t index, double) {
    return values[static_cast<std::size_t>(index) % values.size()];
  };
}

CaseMemory::CaseMemory(Mode mode, std::byte* base, std::size_t size)
    : mode_(mode), base_(base), size_(size) {}

Tensor CaseMemory::add(std::string_view name, DType dtype, const Shape& shape, Role role,
                       const Values* values) {
  const std::size_t index = operands_.size();
  // At least one whole gap of kAlignment lies before and after each operand.
  const std::size_t start = used_ + kAlignment;
  const std::size_t offset = start + static_cast<std::size_t>(misalignment_) * size_of(dtype);
  operands_.push_back({std::string(name), offset, dtype, shape, role});
  const std::size_t end = offset + static_cast<std::size_t>(shape.elements()) * size_of(dtype);
  used_ = (end + kAlignment - 1) / kAlignment * kAlignment + kAlignment;
  if (mode_ == Mode::exact) {
    exact_.emplace_back(static_cast<std::size_t>(shape.elements() + 1) * sizeof(double));
  }
  const Tensor result = tensor(index);
  if (mode_ == Mode::addresses) return result;
  BELAY_CHECK(mode_ == Mode::exact || used_ <= size_);
  if (values != nullptr) {
    for (std::int64_t i = 0; i < shape.elements(); ++i) {
      store(result, i, rounded(dtype, (*values)(i, draw(index, i))));
    }
  }
  return result;
}

Tensor CaseMemory::tensor(std::size_t operand) const {
  const Operand& o = operands_[operand];
  if (mode_ == Mode::exact) {
    const DType dtype = is_floating(o.dtype) ? DType::f64 : o.dtype;
    return {const_cast<std::byte*>(exact_[operand].data()), dtype, o.shape};
  }
  // There is no memory yet while the operands are counted.
  return {base_ == nullptr ? nullptr : base_ + o.offset, o.dtype, o.shape};
}

Tensor CaseMemory::input(std::string_view name, DType dtype, const Shape& shape,
                         const Values& values) {
  return add(name, dtype, shape, Role::input, &values);
}

Tensor CaseMemory::output(std::string_view name, DType dtype, const Shape& shape) {
  return add(name, dtype, shape, Role::output, nullptr);
}

Tensor CaseMemory::inout(std::string_view name, DType dtype, const Shape& shape,
                         const Values& values) {
  return add(name, dtype, shape, Role::inout, &values);
}

void CaseMemory::mark_written(const Tensor& tensor) {
  for (std::size_t i = 0; i < operands_.size(); ++i) {
    if (this->tensor(i).data == tensor.data) operands_[i].role = Role::inout;
  }
}

}  // namespace belay::conformance
