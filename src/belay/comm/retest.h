#pragma once
// When a link is tested again: less and less often as long as the answer stays the same.

#include <algorithm>
#include <cstdint>

namespace belay::comm {

class Retest {
 public:
  static constexpr std::int64_t kFirstPause = 8;  // steps
  static constexpr std::int64_t kLongestPause = 1024;
  // A link that was suspected wrongly may well become slow later.
  static constexpr std::int64_t kLongestDoubt = 64;

  [[nodiscard]] bool due(std::int64_t step) const { return step >= next_; }

  // After a test in this step. The first two change what is known of the link.
  void found_slow(std::int64_t step) { restart(step, 2 * kFirstPause); }
  void healed(std::int64_t step) { restart(step, kFirstPause); }
  void still_slow(std::int64_t step) { back_off(step, kLongestPause); }
  void wrongly_suspected(std::int64_t step) { back_off(step, kLongestDoubt); }

 private:
  void restart(std::int64_t step, std::int64_t pause) {
    next_ = step + kFirstPause;
    pause_ = pause;
  }
  void back_off(std::int64_t step, std::int64_t longest) {
    next_ = step + pause_;
    pause_ = std::min(2 * pause_, longest);
  }

  std::int64_t next_ = 0;
  std::int64_t pause_ = kFirstPause;
};

}  // namespace belay::comm
