#pragma once
// Arena: hands out aligned pieces of one block, front to back. A mark taken earlier can be returned
// to, which frees everything after it. The block belongs to the caller (see device/device.h).
// peak() is what the block must hold; it is how a dry pass sizes arenas before step 1.

#include <cstddef>
#include <string>

#include "belay/base/tensor.h"

namespace belay {

inline constexpr std::size_t kAlignment = 128;  // bytes; also the transfer granule of Ascend

class Arena {
 public:
  Arena() = default;
  // `name` appears in the error when the block is too small (exit code 6).
  Arena(std::string name, void* base, std::size_t capacity)
      : name_(std::move(name)), base_(static_cast<std::byte*>(base)), capacity_(capacity) {}

  Tensor allocate(DType dtype, const Shape& shape);
  [[nodiscard]] std::size_t mark() const { return used_; }
  void release(std::size_t mark);
  [[nodiscard]] std::size_t peak() const { return peak_; }
  [[nodiscard]] std::size_t capacity() const { return capacity_; }

 private:
  std::string name_;
  std::byte* base_ = nullptr;
  std::size_t capacity_ = 0;
  std::size_t used_ = 0;
  std::size_t peak_ = 0;
};

// Releases on scope exit everything allocated from the arena since construction.
class ArenaScope {
 public:
  explicit ArenaScope(Arena& arena) : arena_(arena), mark_(arena.mark()) {}
  ~ArenaScope() { arena_.release(mark_); }
  ArenaScope(const ArenaScope&) = delete;
  ArenaScope& operator=(const ArenaScope&) = delete;

 private:
  Arena& arena_;
  std::size_t mark_;
};

}  // namespace belay
