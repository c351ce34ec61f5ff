#pragma once
// The last gradient norms of every layer, kept as 16-bit logarithms: in memory, in snapshots and in
// the run's record the same numbers, so that what is decided from them resumes bit for bit.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace belay {

// A norm as a 16-bit number: 0 for zero, 65535 for what is not finite, else 1 to 65534 in steps of
// 1/480 of an octave (0.14%) from 2^-64 on; norms outside of 2^-64 to 2^72 take the nearest end.
using NormCode = std::uint16_t;
inline constexpr NormCode kNotFinite = 65535;
NormCode norm_code(double norm);
// Logarithm to base 2; that of zero is taken for -64, and +inf stands for what is not finite.
double log2_norm(NormCode code);

class NormHistory {
 public:
  // Keeps the last `capacity` steps of `layers` layers.
  NormHistory(int layers, std::int64_t capacity);

  void push(std::span<const double> norms);

  [[nodiscard]] int layers() const { return layers_; }
  [[nodiscard]] std::int64_t size() const { return size_; }
  // Steps ever pushed.
  [[nodiscard]] std::int64_t seen() const { return seen_; }
  // Logarithms of a layer's newest out.size() norms, oldest first; out.size() <= size().
  void copy(int layer, std::span<double> out) const;

  [[nodiscard]] std::string state() const;
  // A state of another capacity gives its newest steps. Error(data) when it is damaged or of
  // another number of layers.
  void restore(std::string_view text);

 private:
  // Step `index` counted from the oldest kept.
  [[nodiscard]] std::span<const NormCode> row(std::int64_t index) const;

  int layers_;
  std::int64_t capacity_;
  std::int64_t size_ = 0;
  std::int64_t seen_ = 0;
  std::vector<NormCode> codes_;  // [capacity, layers], a ring: step s in row s % capacity
};

}  // namespace belay
