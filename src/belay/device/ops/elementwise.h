#pragma once
// Small operators that move or combine whole tensors.

#include "belay/base/philox.h"
#include "belay/base/tensor.h"
#include "belay/device/kernel.h"
#include "belay/device/ops/inside.h"

namespace belay {

// dst = value everywhere.
struct FillArgs {
  static constexpr std::string_view kName = "fill";
  Tensor dst;  // f32, bf16, f16, f64 or i32
  double value = 0;
  [[nodiscard]] Cost cost() const { return {0.0, static_cast<double>(dst.bytes())}; }
  [[nodiscard]] DType arithmetic() const { return dst.dtype; }
  template <class Visit>
  void each_result(Visit&& visit) const {
    visit("dst", dst);
  }
  void check() const { BELAY_CHECK(!dst.empty()); }
};

// dst = src, converted between f32, bf16 and f16.
struct CastArgs {
  static constexpr std::string_view kName = "cast";
  Tensor src;
  Tensor dst;
  [[nodiscard]] Cost cost() const { return {0.0, static_cast<double>(src.bytes() + dst.bytes())}; }
  [[nodiscard]] DType arithmetic() const { return dst.dtype; }
  template <class Visit>
  void each_result(Visit&& visit) const {
    visit("dst", dst);
  }
  void check() const { BELAY_CHECK(src.elements() == dst.elements()); }
};

// dst = a + b; dst may alias either.
struct AddArgs {
  static constexpr std::string_view kName = "add";
  Tensor a;
  Tensor b;
  Tensor dst;
  [[nodiscard]] Cost cost() const {
    return {static_cast<double>(dst.elements()), 3.0 * static_cast<double>(dst.bytes())};
  }
  [[nodiscard]] DType arithmetic() const { return dst.dtype; }
  template <class Visit>
  void each_result(Visit&& visit) const {
    visit("dst", dst);
  }
  void check() const { BELAY_CHECK(a.shape == b.shape && a.shape == dst.shape); }
};

// dst = keep ? src / (1 - probability) : 0 (Srivastava et al., JMLR 15, 2014). Element i is kept
// when uniform(word (first_element + i) % 4 of random_block(key, (first_element + i) / 4)) >=
// probability; the same call on the gradient is the backward pass. dst may alias src.
struct DropoutArgs {
  static constexpr std::string_view kName = "dropout";
  Tensor src;  // f32, bf16 or f16
  Tensor dst;
  float probability = 0;
  RandomKey key;
  std::uint64_t first_element = 0;
  [[nodiscard]] Cost cost() const {
    return {2.0 * static_cast<double>(dst.elements()), 2.0 * static_cast<double>(dst.bytes())};
  }
  [[nodiscard]] DType arithmetic() const { return dst.dtype; }
  template <class Visit>
  void each_result(Visit&& visit) const {
    visit("dst", dst);
  }
  void check() const { BELAY_CHECK(src.shape == dst.shape && src.dtype == dst.dtype); }
};

// dst[c] += sum over rows of src[r,c]: the gradient of a bias.
struct ColumnSumArgs {
  static constexpr std::string_view kName = "column_sum";
  Tensor src;                    // [rows, n]; f32, bf16 or f16
  Tensor dst;                    // [n] f32, accumulated
  Inside inside = Inside::full;  // the sums, before they are added to dst
  [[nodiscard]] Cost cost() const {
    return {static_cast<double>(src.elements()), static_cast<double>(src.bytes() + dst.bytes())};
  }
  [[nodiscard]] DType arithmetic() const { return inside == Inside::full ? DType::f32 : src.dtype; }
  template <class Visit>
  void each_result(Visit&& visit) const {
    visit("dst", dst);
  }
  void check() const { BELAY_CHECK(src.dim(1) == dst.elements() && dst.dtype == DType::f32); }
};

// dst[0] += sum of src in f64, first to last.
struct SumArgs {
  static constexpr std::string_view kName = "sum";
  Tensor src;  // f32
  Tensor dst;  // [1] f64, accumulated
  [[nodiscard]] Cost cost() const {
    return {static_cast<double>(src.elements()), static_cast<double>(src.bytes())};
  }
  [[nodiscard]] DType arithmetic() const { return DType::f32; }
  template <class Visit>
  void each_result(Visit&& visit) const {
    visit("dst", dst);
  }
  void check() const { BELAY_CHECK(src.dtype == DType::f32 && dst.dtype == DType::f64); }
};

}  // namespace belay
