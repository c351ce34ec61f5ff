#pragma once
// SampleOrder: which sample comes at which position of an endless run. Position p lies in epoch
// p / samples, and within an epoch the order is a permutation that depends on (seed, epoch) alone:
// nothing is stored, nothing is drawn in sequence, so any worker and any resume computes the same
// order, and each epoch holds each sample exactly once.
//
// The permutation is a balanced Feistel network (Luby and Rackoff, SIAM J. Comput. 17, 1988) over
// the smallest 4^k >= samples with Philox as round function; values outside [0, samples) are sent
// through again until they fall inside (cycle walking: Black and Rogaway, CT-RSA 2002).

#include <cstdint>

namespace belay::data {

class SampleOrder {
 public:
  // samples > 0.
  SampleOrder(std::uint64_t seed, std::int64_t samples);

  // Sample index in [0, samples); position >= 0.
  [[nodiscard]] std::int64_t at(std::int64_t position) const;
  [[nodiscard]] std::int64_t epoch(std::int64_t position) const { return position / samples_; }
  [[nodiscard]] std::int64_t samples() const { return samples_; }

 private:
  std::uint64_t seed_;
  std::int64_t samples_;
  unsigned half_bits_;
};

}  // namespace belay::data
