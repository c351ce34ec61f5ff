#pragma once
// The k largest magnitudes of a vector: a sample tells a magnitude that somewhat more than k
// reach, one pass collects those, and the exact k are chosen among them. Where the sample misled,
// all are looked at. Of equal magnitudes at the edge the first ones are taken, so the result is a
// function of the values alone. What is infinite or NaN counts as largest.

#include <cstdint>
#include <span>
#include <vector>

namespace belay::comm {

class TopK {
 public:
  // Has room to select from vectors of up to `most` elements, fewer than 2^32 - 64.
  explicit TopK(std::int64_t most);
  static std::size_t bytes(std::int64_t most);

  // 1 <= k <= size. Ascending indices; valid until the next call.
  std::span<const std::uint32_t> select(std::span<const float> values, std::int64_t k);

 private:
  [[nodiscard]] std::uint32_t likely_limit(std::span<const float> values, std::int64_t k);

  std::vector<std::uint32_t> indices_;  // candidates, then those chosen
  std::vector<std::uint32_t> bits_;     // their magnitudes
};

// k of n elements: at least one.
std::int64_t share_of(std::int64_t elements, double ratio);

}  // namespace belay::comm
