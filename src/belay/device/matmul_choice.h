#pragma once
// Which matrix-product candidate serves which shape. No single library wins everywhere, so the
// choice is measured once per shape and then only looked up.

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

#include "belay/device/ops/matmul.h"

namespace belay {

// Everything about a MatmulArgs that its speed depends on.
struct MatmulKey {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  DType src = DType::f32;
  DType dst = DType::f32;
  bool transpose_a = false;
  bool transpose_b = false;
  bool accumulate = false;
  bool bias = false;

  static MatmulKey of(const MatmulArgs& args);
  // "1024x3072x768 nt f32->f32 +bias +acc"; parse() reads the same back, throwing Error(data).
  [[nodiscard]] std::string text() const;
  static MatmulKey parse(std::string_view text);
  friend bool operator==(const MatmulKey&, const MatmulKey&) = default;
};

struct MatmulKeyHash {
  std::size_t operator()(const MatmulKey& key) const;
};

struct MatmulChoice {
  std::string kernel;
  double flops_per_s = 0;  // as measured; 0: not measured
};

class MatmulChoices {
 public:
  // Empty when the shape has no entry. Allocates nothing.
  [[nodiscard]] std::string_view find(const MatmulKey& key) const;
  void set(const MatmulKey& key, MatmulChoice choice) { choices_[key] = std::move(choice); }
  [[nodiscard]] const auto& all() const { return choices_; }

 private:
  std::unordered_map<MatmulKey, MatmulChoice, MatmulKeyHash> choices_;
};

}  // namespace belay
