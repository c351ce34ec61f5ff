#pragma once
// Buffers for messages that come and go: those given back serve the next ones, up to a bound.

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace belay::comm {

class BufferPool {
 public:
  struct Buffer {
    std::unique_ptr<std::byte[]> data;
    std::size_t bytes = 0;
  };

  // most_bytes: of what is kept for later.
  explicit BufferPool(std::size_t most_bytes) : most_bytes_(most_bytes) {}

  // The smallest kept one that is large enough, or a new one.
  Buffer take(std::size_t bytes) {
    const auto fitting = std::lower_bound(kept_.begin(), kept_.end(), bytes, smaller);
    if (fitting == kept_.end()) {
      return {std::make_unique_for_overwrite<std::byte[]>(bytes), bytes};
    }
    Buffer buffer = std::move(*fitting);
    kept_.erase(fitting);
    kept_bytes_ -= buffer.bytes;
    return buffer;
  }

  // The smallest ones go first, as they serve the fewest.
  void give_back(Buffer buffer) {
    if (buffer.bytes == 0) return;
    kept_bytes_ += buffer.bytes;
    const auto place = std::lower_bound(kept_.begin(), kept_.end(), buffer.bytes, smaller);
    kept_.insert(place, std::move(buffer));
    while (kept_bytes_ > most_bytes_) {
      kept_bytes_ -= kept_.front().bytes;
      kept_.erase(kept_.begin());
    }
  }

  [[nodiscard]] std::size_t kept_bytes() const { return kept_bytes_; }

 private:
  static bool smaller(const Buffer& buffer, std::size_t bytes) { return buffer.bytes < bytes; }

  std::size_t most_bytes_;
  std::size_t kept_bytes_ = 0;
  std::vector<Buffer> kept_;  // by size
};

}  // namespace belay::comm
