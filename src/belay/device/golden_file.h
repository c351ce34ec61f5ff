#pragma once
// For tests: the golden tensors of tests/golden, and comparison of a kernel's result with them.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "belay/base/arena.h"
#include "belay/device/reference/element.h"

namespace belay {

// Host memory aligned as the engine's own, for operands of kernels that run on host memory.
class HostPool {
 public:
  Tensor allocate(DType dtype, const Shape& shape) {
    const std::size_t bytes = static_cast<std::size_t>(shape.elements()) * size_of(dtype);
    blocks_.emplace_back(
        static_cast<std::byte*>(::operator new (bytes + kAlignment, std::align_val_t{kAlignment})));
    // A result that a kernel forgets to write is a NaN (0xffff is one in bf16 too).
    std::memset(blocks_.back().get(), 0xff, bytes);
    return {blocks_.back().get(), dtype, shape};
  }

 private:
  struct Free {
    void operator()(std::byte* block) const {
      ::operator delete (block, std::align_val_t{kAlignment});
    }
  };
  std::vector<std::unique_ptr<std::byte, Free>> blocks_;
};

class GoldenFile {
 public:
  // `name` is relative to tests/golden.
  explicit GoldenFile(const std::string& name) {
    const std::string path = std::string(BELAY_SOURCE_DIR) + "/tests/golden/" + name;
    std::ifstream file(path, std::ios::binary);
    if (!file) throw std::runtime_error("cannot open " + path);
    std::uint64_t header_bytes = 0;
    file.read(reinterpret_cast<char*>(&header_bytes), sizeof(header_bytes));
    std::string text(header_bytes, ' ');
    file.read(text.data(), static_cast<std::streamsize>(header_bytes));
    header_ = nlohmann::json::parse(text);
    data_.assign(std::istreambuf_iterator<char>(file), {});
  }

  [[nodiscard]] bool has(const std::string& name) const { return header_.contains(name); }

  // Names of all tensors.
  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> result;
    for (const auto& [name, entry] : header_.items()) {
      if (name != "__metadata__") result.push_back(name);
    }
    return result;
  }

  // The part before the last '/' of every name, each once, in order.
  [[nodiscard]] std::vector<std::string> cases() const {
    std::vector<std::string> result;
    for (const std::string& name : names()) {
      const std::string part = name.substr(0, name.rfind('/'));
      if (result.empty() || result.back() != part) result.push_back(part);
    }
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
  [[nodiscard]] Tensor view(const std::string& name) const {
    if (!has(name)) throw std::runtime_error("no golden tensor " + name);
    const nlohmann::json& entry = header_.at(name);
    const std::string dtype = entry.at("dtype");
    Tensor tensor;
    tensor.dtype = dtype == "F32"    ? DType::f32
                   : dtype == "BF16" ? DType::bf16
                   : dtype == "I32"  ? DType::i32
                                     : DType::f64;
    for (const std::int64_t dim : entry.at("shape")) tensor.shape.push_back(dim);
    tensor.data = const_cast<char*>(data_.data()) + entry.at("data_offsets")[0].get<std::size_t>();
    return tensor;
  }

  nlohmann::json header_;
  std::vector<char> data_;
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
