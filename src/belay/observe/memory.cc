#include "belay/observe/memory.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

namespace belay {

std::int64_t resident_bytes() {
  const int descriptor = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return 0;
  char text[128] = {};
  const ssize_t size = read(descriptor, text, sizeof(text) - 1);
  close(descriptor);
  if (size <= 0) return 0;
  char* end = nullptr;
  std::strtoll(text, &end, 10);  // total program size
  return std::strtoll(end, nullptr, 10) * sysconf(_SC_PAGESIZE);
}

std::int64_t peak_resident_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::int64_t>(usage.ru_maxrss) * 1024;
}

std::optional<double> GrowthWatch::add(std::int64_t step, std::int64_t bytes) {
  if (reported_) return std::nullopt;
  if (first_step_ < 0) first_step_ = step;
  const std::int64_t window = (step - first_step_) / kWindowSteps;
  if (window == window_) {
    if (low_.bytes == 0 || bytes < low_.bytes) low_ = {step, bytes};
    return std::nullopt;
  }
  if (window_ > 0) {
    std::rotate(lows_.begin(), lows_.begin() + 1, lows_.end());
    lows_.back() = low_;
    ++count_;
  }
  window_ = window;
  low_ = {step, bytes};
  if (count_ < kWindows) return std::nullopt;

  const auto rate = [](const Low& from, const Low& to) {
    const auto steps = static_cast<double>(to.step - from.step);
    return static_cast<double>(to.bytes - from.bytes) / (1024.0 * 1024.0) * 1000.0 / steps;
  };
  for (std::size_t index = 1; index < kWindows; ++index) {
    if (rate(lows_[index - 1], lows_[index]) < tolerated_) return std::nullopt;
  }
  reported_ = true;
  return rate(lows_.front(), lows_.back());
}

}  // namespace belay
