#pragma once
// For tests: the golden tensors of tests/golden, and comparison of a kernel's result with them.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "belay/device/host_pool.h"
#include "belay/device/reference/element.h"
#include "belay/snapshot/safetensors.h"

namespace belay {

class GoldenFile {
 public:
  // `name` is relative to tests/golden.
  explicit GoldenFile(const std::string& name)
      : file_(SafetensorsFile::open(std::string(BELAY_SOURCE_DIR) + "/tests/golden/" + name)) {}

  [[nodiscard]] bool has(const std::string& name) const { return file_.find(name) != nullptr; }

  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> result;
    for (const TensorInfo& info : file_.tensors()) result.push_back(info.name);
    return result;
  }

  // The part before the last '/' of every name, each once, in alphabetical order.
  [[nodiscard]] std::set<std::string> cases() const {
    std::set<std::string> result;
    for (const std::string& name : names()) result.insert(name.substr(0, name.rfind('/')));
    return result;
  }

  // A copy in `pool` that a kernel may write to.
  Tensor copy(HostPool& pool, const std::string& name) const {
    const Tensor stored = view(name);
    const Tensor result = pool.allocate(stored.dtype, stored.shape);
    std::memcpy(result.data, stored.data, stored.bytes());
    return result;
  }

  [[nodiscard]] double scalar(const std::string& name) const { return load(view(name), 0); }

  [[nodiscard]] std::vector<double> values(const std::string& name) const {
    const Tensor stored = view(name);
    std::vector<double> result;
    for (std::int64_t i = 0; i < stored.elements(); ++i) result.push_back(load(stored, i));
    return result;
  }

  [[nodiscard]] Shape shape(const std::string& name) const { return view(name).shape; }

 private:
  // Read only: the file is mapped. The script that writes these files aligns every tensor.
  [[nodiscard]] Tensor view(const std::string& name) const {
    const TensorInfo* info = file_.find(name);
    if (info == nullptr) throw std::runtime_error(file_.path() + " has no tensor " + name);
    Tensor tensor;
    switch (info->dtype) {
      case StoredType::f64:
        tensor.dtype = DType::f64;
        break;
      case StoredType::f32:
        tensor.dtype = DType::f32;
        break;
      case StoredType::bf16:
        tensor.dtype = DType::bf16;
        break;
      case StoredType::f16:
        tensor.dtype = DType::f16;
        break;
      case StoredType::i32:
        tensor.dtype = DType::i32;
        break;
      default:
        throw std::runtime_error(name + ": golden tensors are F64, F32, BF16, F16 or I32");
    }
    for (const std::uint64_t dim : info->shape) {
      tensor.shape.push_back(static_cast<std::int64_t>(dim));
    }
    tensor.data = const_cast<std::byte*>(file_.bytes(*info).data());
    return tensor;
  }

  SafetensorsFile file_;
};

// How far a result may be from the golden value: ||a - b|| / ||b|| over the whole tensor, and the
// largest |a - b| over the largest |b|.
struct Tolerance {
  double norm = 0;
  double worst = 0;
};

// f32: what the project promises.
inline constexpr Tolerance kF32Tolerance{1e-5, 1e-5};
// bf16: one rounding of the result to 8 significant bits is off by at most 2^-9 of the next power
// of two, so by 2^-8 of the value itself at worst.
inline constexpr Tolerance kBf16Tolerance{0x1p-8, 0x1p-8};
// f16: the same with 11 significant bits.
inline constexpr Tolerance kF16Tolerance{0x1p-11, 0x1p-11};

inline const Tolerance& tolerance_of(DType dtype) {
  return dtype == DType::bf16  ? kBf16Tolerance
         : dtype == DType::f16 ? kF16Tolerance
                               : kF32Tolerance;
}

struct Distance {
  double norm = 0;
  double worst = 0;
};

inline Distance distance(const std::vector<double>& actual, const std::vector<double>& expected) {
  double difference = 0;
  double size = 0;
  double largest_difference = 0;
  double largest = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double off = actual[i] - expected[i];
    difference += off * off;
    size += expected[i] * expected[i];
    if (!(std::abs(off) <= largest_difference)) largest_difference = std::abs(off);
    largest = std::max(largest, std::abs(expected[i]));
  }
  if (size == 0) return {std::sqrt(difference), largest_difference};
  return {std::sqrt(difference / size), largest_difference / largest};
}

inline std::vector<double> to_doubles(const Tensor& tensor) {
  std::vector<double> result;
  for (std::int64_t i = 0; i < tensor.elements(); ++i) result.push_back(load(tensor, i));
  return result;
}

inline void expect_close(const std::vector<double>& actual, const std::vector<double>& expected,
                         const Tolerance& tolerance, const std::string& name) {
  ASSERT_EQ(actual.size(), expected.size()) << name;
  const Distance off = distance(actual, expected);
  // Written so that a NaN fails.
  EXPECT_TRUE(off.norm <= tolerance.norm) << name << ": norm-wise off by " << off.norm;
  EXPECT_TRUE(off.worst <= tolerance.worst) << name << ": off by " << off.worst << " at worst";
}

}  // namespace belay
