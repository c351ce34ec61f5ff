#pragma once
// The median step time of a run, over its last steps.

#include <algorithm>
#include <cstddef>
#include <vector>

namespace belay {

class StepTimes {
 public:
  StepTimes() { times_.reserve(kMost); }

  void add(double ms) {
    if (times_.size() < kMost) {
      times_.push_back(static_cast<float>(ms));
    } else {
      times_[next_++ % kMost] = static_cast<float>(ms);
    }
  }
  // 0 without any.
  [[nodiscard]] double median() const {
    if (times_.empty()) return 0;
    std::vector<float> sorted = times_;
    const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
    std::nth_element(sorted.begin(), middle, sorted.end());
    return static_cast<double>(*middle);
  }

 private:
  static constexpr std::size_t kMost = 65536;
  std::vector<float> times_;
  std::size_t next_ = 0;
};

}  // namespace belay
