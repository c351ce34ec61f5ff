#pragma once
// Resident memory of this process, and a watch on its growth.

#include <array>
#include <cstdint>
#include <optional>

namespace belay {

// Resident set size in bytes, from /proc/self/statm; 0 where that does not exist. Allocates
// nothing.
std::int64_t resident_bytes();
// The largest resident set so far, in bytes (getrusage).
std::int64_t peak_resident_bytes();

// Tells steady growth, as a leak shows, from noise and from one-time jumps: the smallest sample of
// each of four windows in a row must rise by at least the tolerated rate. The first window is warm
// up and does not count.
class GrowthWatch {
 public:
  // Tolerated MiB per 1000 steps.
  explicit GrowthWatch(double tolerated) : tolerated_(tolerated) {}

  // One sample per step. Returns the rate in MiB per 1000 steps, once, when growth is steady.
  std::optional<double> add(std::int64_t step, std::int64_t bytes);

 private:
  static constexpr std::int64_t kWindowSteps = 100;
  static constexpr std::size_t kWindows = 4;
  struct Low {
    std::int64_t step = 0;
    std::int64_t bytes = 0;
  };

  double tolerated_;
  std::int64_t first_step_ = -1;
  std::int64_t window_ = 0;
  Low low_;
  std::array<Low, kWindows> lows_{};
  std::size_t count_ = 0;
  bool reported_ = false;
};

}  // namespace belay
